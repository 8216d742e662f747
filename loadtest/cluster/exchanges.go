package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Further values of [Options.KV].
const (
	// KVLMCache finds a prompt's KV by its tokens; nothing travels.
	KVLMCache = "kv-lmcache"
	// KVMooncake moves it by an id that both legs bring.
	KVMooncake = "kv-mooncake"
	// KVMoriio is MoRIIO in READ mode: a ticket, and an id that prefill brings.
	KVMoriio = "kv-moriio"
	// KVOffloading is the P2P tier of a CPU cache: an id that both legs bring, and
	// nothing pinned.
	KVOffloading = "kv-offloading"
)

// How the models of a kv-moriio cluster are split. Its legs have to say so.
const (
	MoriioPrefillTP = 2
	MoriioDecodeTP  = 4
	MoriioDecodeDP  = 8
)

// exchange is how a prompt's KV travels with one connector.
type exchange struct {
	// idField names the transfer param of decode by which the KV is known; "": none.
	idField string
	// give is what a prefill worker does when it has computed the prompt: the
	// kv_transfer_params that it answers.
	give func(l *leg, p *prompt) (json.RawMessage, error)
	// load is what a decode worker does with its transfer params, which may be nil.
	// The caller holds mu.
	load func(c *Cluster, params json.RawMessage, p *prompt, lose bool) (how loading, breach string)
	// awaits is the path of the id in decode's transfer params if decode may come
	// first: it waits for its prefill then. nil: it does not.
	awaits []string
}

// exchanges are those of the connectors that are neither NIXL nor shared storage.
var exchanges = map[string]*exchange{
	KVLMCache:    {give: (*leg).giveCached, load: (*Cluster).loadCached},
	KVMooncake:   {idField: "transfer_id", give: (*leg).giveMooncake, load: (*Cluster).loadMooncake, awaits: []string{"transfer_id"}},
	KVMoriio:     {idField: "transfer_id", give: (*leg).giveMoriio, load: (*Cluster).loadMoriio},
	KVOffloading: {give: (*leg).giveOffloaded, load: (*Cluster).loadOffloaded, awaits: []string{"remote_prefiller", "kv_request_id"}},
}

// broken notes a breach of a connector's protocol, and is the answer of a worker
// that fails by it.
func (l *leg) broken(format string, args ...any) error {
	l.violate(format, args...)
	return &refusal{http.StatusInternalServerError, "InternalServerError", fmt.Sprintf(format, args...), "kv_transfer_params"}
}

func (l *leg) giveCached(p *prompt) (json.RawMessage, error) {
	if l.transferParams("kv_transfer_params") != nil {
		l.violate("kv_transfer_params with %s", KVLMCache)
	}
	if !l.fault.LoseKV {
		l.cluster.store(p)
	}
	return json.RawMessage("{}"), nil // as its multiprocess kind answers
}

func (c *Cluster) loadCached(params json.RawMessage, p *prompt, _ bool) (loading, string) {
	switch {
	case len(params) > 0:
		return failed, "kv_transfer_params with " + KVLMCache
	case !c.kv.stored.members[p.key]:
		return recomputed, ""
	}
	return loaded, ""
}

// newID reads a prefill's transfer params, which must be the given text with the id
// in the place of %s, and an id that no prefill had before.
func (l *leg) newID(wanted string, path ...string) (string, error) {
	params := l.transferParams("kv_transfer_params")
	id := textAt(params, path...)
	if id == "" {
		return "", l.broken("KeyError: %s", strings.Join(path, "."))
	}
	if !same(params, fmt.Appendf(nil, wanted, encode(id))) {
		l.violate("kv_transfer_params are not those of a prefill with %s", l.cluster.options.KV)
	}
	if !l.cluster.claim(id) {
		return "", l.broken("%s %s was used before", path[len(path)-1], id)
	}
	return id, nil
}

// claim reports whether an id that somebody has minted is new, and remembers it.
func (c *Cluster) claim(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.kv.claimed.members[id]
	c.kv.claimed.add(id)
	return !known
}

// textAt is the string at a path of members, "" if there is none.
func textAt(params json.RawMessage, path ...string) string {
	for _, name := range path[:len(path)-1] {
		o, _, _ := parseObject(params)
		params = o[name]
	}
	o, _, err := parseObject(params)
	if err != nil {
		return ""
	}
	id, _ := o.text(path[len(path)-1])
	return id
}

func (l *leg) giveMooncake(p *prompt) (json.RawMessage, error) {
	id, err := l.newID(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":%s}`, "transfer_id")
	if err != nil {
		return nil, err
	}
	l.cluster.issueHandoff(p, id, l.fault.LoseKV)
	l.issued = id
	return nil, nil // the answer has null
}

func (c *Cluster) loadMooncake(params json.RawMessage, p *prompt, lose bool) (loading, string) {
	if len(params) == 0 {
		return recomputed, ""
	}
	id := textAt(params, "transfer_id")
	want := fmt.Appendf(nil, `{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":%s,"remote_engine_id":%q,"remote_bootstrap_addr":%q}`,
		encode(id), c.engineID, "http://"+c.prefillAddress())
	if !same(params, want) {
		return failed, "kv_transfer_params are not those of this prefill worker"
	}
	how, breach := c.take(id, p, lose, "")
	if how == mixedUp { // a worker waits for KV that is gone, and gives up
		return failed, "transfer_id was used before"
	}
	return how, breach
}

// take hands the KV of a hand-off to a decode, unless there is a breach in how it was
// asked for. The caller holds mu.
func (c *Cluster) take(id string, p *prompt, lose bool, breach string) (loading, string) {
	h := c.kv.byID[id]
	if h == nil {
		return failed, ""
	}
	if lose && h.state == kvHeld {
		c.end(h, kvGone)
	}
	switch {
	case h.state == kvGone:
		return failed, ""
	case h.state == kvFetched:
		return mixedUp, ""
	case breach != "":
		return failed, breach
	case h.prompt != p.key:
		return failed, "the prompt is not the one that prefill computed"
	}
	c.end(h, kvFetched)
	return loaded, ""
}

// awaitPrefill has a decode wait for its prefill, which may come later or never.
func (l *leg) awaitPrefill() error {
	c := l.cluster
	x := exchanges[c.options.KV]
	if x == nil || x.awaits == nil {
		return nil
	}
	id := textAt(l.transferParams("kv_transfer_params"), x.awaits...)
	if id == "" {
		return nil
	}
	patience := time.NewTimer(c.options.Lease)
	defer patience.Stop()
	for { // Wait would do, but for the patience
		c.mu.Lock()
		there, changed := c.kv.byID[id] != nil, c.nextChange()
		c.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-patience.C:
			return nil // it fails
		case <-l.request.Context().Done():
			return l.request.Context().Err()
		case <-c.closing:
			return ErrClosed
		}
	}
}

func (l *leg) giveMoriio(p *prompt) (json.RawMessage, error) {
	id, err := l.newID(fmt.Sprintf(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":%%s,"remote_dp_size":%d,"remote_tp_size":%d}`,
		MoriioDecodeDP, MoriioDecodeTP), "transfer_id")
	if err != nil {
		return nil, err
	}
	h := l.cluster.issueHandoff(p, id, l.fault.LoseKV)
	l.issued = id
	return h.ticket, nil
}

// moriioTicket is what MoRIIO's prefill answers, plus a field that nobody knows.
func (c *Cluster) moriioTicket(id string) json.RawMessage {
	return fmt.Appendf(nil, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[3,1,2],"remote_engine_id":%q,"remote_host":"10.0.0.1",`+
		`"remote_handshake_port":6301,"remote_notify_port":61005,"remote_dp_size":1,"tp_size":%d,"transfer_id":%s,"x_opaque":{"z":9007199254740993,"a":1.0}}`,
		c.engineID, MoriioPrefillTP, encode(id))
}

func (c *Cluster) loadMoriio(params json.RawMessage, p *prompt, lose bool) (loading, string) {
	if len(params) == 0 {
		return recomputed, ""
	}
	id := textAt(params, "transfer_id")
	if h := c.kv.byID[id]; h != nil && h.state == kvHeld {
		fields, _, _ := parseObject(presented(h.ticket))
		fields["remote_tp_size"], fields["remote_dp_rank"] = fmt.Appendf(nil, "%d", MoriioPrefillTP), json.RawMessage("0")
		if !same(params, encode(fields)) {
			return failed, "kv_transfer_params are not what prefill gave out"
		}
	}
	return c.take(id, p, lose, "")
}

func (l *leg) giveOffloaded(p *prompt) (json.RawMessage, error) {
	id, err := l.newID(`{"remote_decoder":{"kv_request_id":%s}}`, "remote_decoder", "kv_request_id")
	if err != nil {
		return nil, err
	}
	c := l.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &handoff{id: id, prompt: p.key, state: kvFetched} // nothing is pinned
	if l.fault.LoseKV {
		h.state = kvGone
	}
	c.kv.byID[id] = h
	if oldest, full := c.kv.over.add(id); full {
		delete(c.kv.byID, oldest)
	}
	c.notify()
	return nil, nil
}

func (c *Cluster) loadOffloaded(params json.RawMessage, p *prompt, lose bool) (loading, string) {
	if len(params) == 0 {
		return recomputed, ""
	}
	id := textAt(params, "remote_prefiller", "kv_request_id")
	host, port := c.prefillHostPort()
	if !same(params, fmt.Appendf(nil, `{"remote_prefiller":{"kv_request_id":%s,"remote_host":%q,"remote_port":%d}}`, encode(id), host, port)) {
		return failed, "kv_transfer_params are not those of this prefill worker"
	}
	h := c.kv.byID[id]
	switch {
	case h == nil || h.state == kvGone || lose: // it is not in the cache any more
		return recomputed, ""
	case h.prompt != p.key:
		return failed, "the prompt is not the one that prefill computed"
	}
	return loaded, ""
}
