package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Report is what would happen to a request.
type Report struct {
	Method string `json:"method"`
	Route  string `json:"route"`
	// Accepted: the client would get what a decode worker answers. If not, Refused
	// is what it would get.
	Accepted bool     `json:"accepted"`
	Refused  *Refusal `json:"refused,omitempty"`
	// Assumed is what the report takes for granted, because it calls nothing.
	Assumed []string `json:"assumed"`
	// Removed are members of the body that a client may not send through.
	Removed []string `json:"removed_from_body,omitempty"`
	// NotForwarded are the client's headers that no leg has.
	NotForwarded []string `json:"headers_not_forwarded,omitempty"`
	// Batch says what happens to a request of several prompts.
	Batch string `json:"batch,omitempty"`
	// Notes are as in the log line of the request.
	Notes  []string `json:"notes,omitempty"`
	Phases []Phase  `json:"phases"`
	Legs   []Leg    `json:"legs"`
	Limits []Limit  `json:"limits"`
}

// Refusal is the coordinator's error as the client sees it.
type Refusal struct {
	Status  int    `json:"status"`
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Phase is one step of the pipeline.
type Phase struct {
	Name string `json:"name"`
	Runs bool   `json:"runs"`
	// Why it runs or is skipped.
	Why string `json:"why"`
}

// Leg is one call to an upstream.
type Leg struct {
	// Name is the phase that sends it, or "passthrough"; Upstream the profile, or
	// "render".
	Name     string `json:"name"`
	Upstream string `json:"upstream"`
	Method   string `json:"method"`
	Address  string `json:"address"`
	Path     string `json:"path"`
	Query    string `json:"query,omitempty"`
	// Headers are those that the coordinator sets, Forwarded the names of those
	// that the client has sent.
	Headers   map[string]string `json:"headers"`
	Forwarded []string          `json:"forwarded_headers,omitempty"`
	// Placeholders name what in the body is made up.
	Placeholders []string `json:"placeholders,omitempty"`
	BodyBytes    int      `json:"body_bytes"`
	// Body is cut.
	Body json.RawMessage `json:"body"`
}

// Limit is a bound of the configuration that applies to the request.
type Limit struct {
	// Of is what it bounds: "request", a pool, or an upstream.
	Of    string `json:"of"`
	Key   string `json:"key"`
	Value string `json:"value"`
	// Note says what it means for this request, if there is something to say.
	Note string `json:"note,omitempty"`
}

// observed is what a coordinator did with a subject.
type observed struct {
	*subject
	*quiet
	answer answer
	legs   []seen
	stages []assembly.Stage // of the pipeline, or of what is passed through
	queue  *queue
	// record is the coordinator's own of the request, if served.
	record server.Record
	served bool
}

func (o *observed) report() *Report {
	o.sortLegs()
	r := &Report{Batch: o.batch(), Method: http.MethodPost, Route: o.path, Removed: o.removed, Notes: o.record.Notes, Phases: []Phase{}, Legs: []Leg{}}
	if r.Accepted = o.answer.status/100 == 2; !r.Accepted {
		r.Refused = o.answer.refusal()
	}
	if o.protocol != nil {
		r.Phases = o.phases()
	}
	left := map[string]bool{}
	for name, values := range o.Request.Header {
		left[http.CanonicalHeaderKey(name)] = len(values) > 0
	}
	for i := range o.legs {
		leg := o.leg(&o.legs[i])
		for _, name := range leg.Forwarded {
			delete(left, name)
		}
		r.Legs = append(r.Legs, leg)
	}
	if len(r.Legs) > 0 {
		r.NotForwarded = sortedNames(left)
	}
	r.Assumed, r.Limits = o.assumed(r), o.limits(r)
	return r
}

func sortedNames(set map[string]bool) (names []string) {
	for name, in := range set {
		if in {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// leg shows a leg as the real upstream would get it.
func (o *observed) leg(l *seen) Leg {
	leg := Leg{Name: o.legName(l), Upstream: l.profile, Method: l.method, Address: o.address(l.host), Path: l.path, Query: maskQuery(l.query),
		Headers: map[string]string{}, BodyBytes: len(l.body), Body: cut(l.body, o.pictures), Placeholders: o.placeholders(l)}
	if l.host == renderHost {
		leg.Upstream = stepRender
	}
	for name, values := range l.header {
		from, operators := o.secret[l.host][name]
		switch {
		case name == "Content-Length":
		case operators:
			leg.Headers[name] = masked + " " + from
		case name != wire.HeaderRequestID && name != "Content-Type" && slices.Equal(values, o.Request.Header.Values(name)):
			leg.Forwarded = append(leg.Forwarded, name)
		case secret.MatchString(name):
			leg.Headers[name] = masked
		default:
			if strings.EqualFold(name, o.real.Gateway.ProfileHeader) {
				name = o.real.Gateway.ProfileHeader // as the operator knows it
			}
			leg.Headers[name] = short(strings.Join(values, ", "))
		}
	}
	slices.Sort(leg.Forwarded)
	return leg
}

// legName names the phase that has sent a leg.
func (o *observed) legName(l *seen) string {
	switch {
	case o.protocol == nil:
		return wire.Passthrough.Name
	case l.host == renderHost:
		return stepRender
	case l.header.Get("Prefer") != "" && l.profile == stepPrefill:
		return "reserve"
	case l.header.Get("Prefer") != "":
		return stepConditional
	}
	return l.profile
}

// placeholders names what in a leg only the upstreams could tell.
func (o *observed) placeholders(l *seen) (found []string) {
	if o.protocol == nil || l.host == renderHost {
		return o.picturesIn(l.body)
	}
	has := func(text string) bool { return bytes.Contains(l.body, []byte(text)) }
	for _, p := range []struct{ mark, name string }{
		{fmt.Sprint(firstID), "token ids"},
		{`"` + hashPrefix, "hashes and places of media"},
		{`"` + tensorText, "rendered tensors (kwargs_data)"},
		{`"` + encodeHost + `"`, "ec_transfer_params: descriptors of encode"},
		{`"bootstrap_host":"` + prefillHost + `"`, "bootstrap_host: the prefill worker that the gateway names"},
		{`"bootstrap_room":`, "bootstrap_room: a number of its own for each attempt"},
		{`"` + engineID + `"`, "kv_transfer_params: the hand-off of prefill"},
	} {
		if has(p.mark) {
			found = append(found, p.name)
		}
	}
	return append(found, o.picturesIn(l.body)...)
}

func (o *observed) picturesIn(body []byte) []string {
	for uri := range o.pictures {
		if bytes.Contains(body, []byte(uri)) {
			return []string{"media that the client names by URL"}
		}
	}
	return nil
}
