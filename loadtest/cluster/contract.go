package cluster

import (
	"encoding/json"
	"strings"
)

// forbiddenFields are those a client could use to steer workers. The coordinator
// takes them out of its client's body, and no leg brings them back.
var forbiddenFields = []string{
	"bootstrap_host", "bootstrap_port", "bootstrap_room",
	"routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank",
}

// forbiddenHeaders are those a client could use to choose a worker, and those
// that say that the body is not what it seems.
var forbiddenHeaders = []string{
	"X-Prefiller-Host-Port", "X-Prefiller-Url", "X-Encoder-Hosts-Ports", "X-Prefill-Pin-Host-Port",
	"X-Gateway-Destination-Endpoint", "X-Data-Parallel-Rank", "Content-Encoding", "Expect",
}

// noteHeaders notes what a leg's headers break of the contract between the
// coordinator and its gateway. No real party would refuse it.
func (l *leg) noteHeaders() {
	if hops := l.request.Header.Values("X-Coordinator-Hop"); len(hops) != 1 || hops[0] != "1" {
		l.violate("X-Coordinator-Hop is %q, not 1", hops)
	}
	if ids := l.request.Header.Values("X-Request-Id"); len(ids) != 1 || ids[0] == "" {
		l.violate("X-Request-Id is %q, not one id", ids)
	}
	profiles := l.request.Header.Values(l.cluster.options.ProfileHeader)
	switch {
	case l.name == Render && len(profiles) > 0:
		l.violate("a render leg has the profile %q", profiles)
	case l.name == Unknown:
		l.violate("no worker has the profile %q", profiles)
	case l.name != Render && len(profiles) != 1:
		l.violate("more than one profile: %q", profiles)
	}
	if prefer := l.request.Header.Values("Prefer"); l.name != Probe && l.name != Reserve && prefer != nil {
		l.violate("a %s leg has Prefer: %q", l.name, prefer)
	}
	l.notePin()
	for _, name := range forbiddenHeaders {
		if l.cluster.chooses() && name == "X-Prefill-Pin-Host-Port" {
			continue
		}
		if l.request.Header.Values(name) != nil {
			l.violate("header %s", name)
		}
	}
}

// noteBody does the same for a leg's body.
func (l *leg) noteBody(repeated []string) {
	for _, name := range repeated {
		l.violate("field %s is there more than once", name)
	}
	for _, name := range forbiddenFields {
		if _, ok := l.body[name]; ok && !(l.pairsHere() && strings.HasPrefix(name, "bootstrap_")) {
			l.violate("field %s", name)
		}
	}
	if _, ok := l.body["tokens"]; ok && l.name == Render {
		l.violate("a render leg has the field tokens")
	}
	if l.name == Prefill && !l.pairsHere() && string(l.sampling["ignore_eos"]) != "true" {
		l.violate("ignore_eos is not true")
	}
	l.noteRequestID()
	l.noteTransferParams()
}

// noteRequestID notes an id in a prefill's body that is not that of its header.
// The chat route has none, that of completions need not have one.
func (l *leg) noteRequestID() {
	_, there := l.body["request_id"]
	if l.name != Prefill || !there && !l.api.tokensIn {
		return
	}
	if id, err := l.body.text("request_id"); err != nil || id != l.record.RequestID {
		l.violate("request_id is %q, X-Request-Id %q", id, l.record.RequestID)
	}
}

// asksForHandoff reports whether a prefill's transfer params ask it to keep the
// KV for a decode.
func asksForHandoff(params json.RawMessage) bool {
	fields, _, err := parseObject(params)
	if err != nil {
		return false
	}
	return string(fields["do_remote_decode"]) == "true" && string(fields["do_remote_prefill"]) == "false"
}
