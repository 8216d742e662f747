package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// handoffState is where a prompt's KV is.
type handoffState int

const (
	kvHeld    handoffState = iota // pinned by prefill
	kvFetched                     // read by a decode
	kvGone                        // freed, expired or lost
)

// handoff is KV that a prefill made, and the ticket it gave out for it. Guarded
// by Cluster.mu.
type handoff struct {
	id     string // its remote_request_id or transfer_id
	prompt promptKey
	ticket json.RawMessage // what prefill answered
	state  handoffState
	lease  *time.Timer // runs while held
}

// ledger is all KV that the prefill worker knows of. Guarded by Cluster.mu.
type ledger struct {
	byID   map[string]*handoff
	over   bounded[string]    // ids of hand-offs that are not held any more
	stored bounded[promptKey] // kv-shared-storage and kv-lmcache: prompts whose KV is stored
	// claimed are the ids that others have minted, of KV and embeddings.
	claimed bounded[string]
}

func newLedger(limit int) ledger {
	return ledger{byID: map[string]*handoff{}, over: newBounded[string](limit), stored: newBounded[promptKey](limit),
		claimed: newBounded[string](limit)}
}

// bounded is a set that forgets its oldest member when it is full.
type bounded[K comparable] struct {
	members map[K]bool
	order   []K
	max     int
}

func newBounded[K comparable](limit int) bounded[K] {
	return bounded[K]{members: map[K]bool{}, max: limit}
}

// add returns the member that had to go for the new one, if any.
func (b *bounded[K]) add(member K) (out K, full bool) {
	if b.members[member] {
		return out, false
	}
	b.members[member] = true
	b.order = append(b.order, member)
	if len(b.order) <= b.max {
		return out, false
	}
	out, b.order = b.order[0], b.order[1:]
	delete(b.members, out)
	return out, true
}

// issueHandoff pins the prompt's KV and returns the ticket for it; an id of "" is
// the worker's to choose. Lost KV is not pinned, but has a ticket all the same.
func (c *Cluster) issueHandoff(p *prompt, id string, lost bool) *handoff {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &handoff{id: id, prompt: p.key}
	switch c.options.KV {
	case KVNixl:
		h.id = fmt.Sprintf("cmpl-%s-%d", c.engineID, c.nextID())
		h.ticket = c.ticket(h.id, len(p.ids))
	case KVMoriio:
		h.ticket = c.moriioTicket(h.id)
	}
	c.kv.byID[h.id] = h
	c.state.HeldKV++
	c.leases.Add(1)
	h.lease = time.AfterFunc(c.options.Lease, func() {
		defer c.leases.Done()
		c.expire(h)
	})
	if lost || c.closed {
		c.end(h, kvGone)
	}
	c.notify()
	return h
}

// store keeps the prompt's KV where any worker finds it.
func (c *Cluster) store(p *prompt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kv.stored.add(p.key)
	c.notify()
}

// ticket writes kv_transfer_params as the NIXL connector does, plus a field that
// nobody knows, with a number too large for a float and one that is spelt
// uncommonly. Its keys are not sorted. The caller holds mu.
func (c *Cluster) ticket(id string, tokens int) json.RawMessage {
	const blockSize, maxBlocks = 16, 64 // a bound on what is remembered per prompt
	var blocks []string
	for i := range min((tokens+blockSize-1)/blockSize, maxBlocks) {
		blocks = append(blocks, fmt.Sprint(c.lastID*maxBlocks+i))
	}
	return fmt.Appendf(nil, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[%s]],`+
		`"remote_engine_id":%q,"remote_request_id":%q,"remote_host":"10.0.0.1","remote_port":5600,"tp_size":1,`+
		`"remote_num_tokens":%d,"remote_blocks_expiry_time":null,"x_opaque":{"z":9007199254740993,"a":1.0}}`,
		strings.Join(blocks, ","), c.engineID, id, tokens)
}

// end takes KV out of prefill's hands. The caller holds mu and has seen that it
// is held.
func (c *Cluster) end(h *handoff, state handoffState) {
	h.state = state
	c.state.HeldKV--
	if h.lease.Stop() {
		c.leases.Done()
	}
	if oldest, ok := c.kv.over.add(h.id); ok {
		delete(c.kv.byID, oldest)
	}
	c.notify()
}

// expire is what the lease timer does.
func (c *Cluster) expire(h *handoff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.state == kvHeld {
		c.state.ExpiredLeases++
		c.end(h, kvGone)
	}
}

// EndLeases ends the leases of all KV that is held, as time would. It may be called
// by several goroutines.
func (c *Cluster) EndLeases() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.kv.byID {
		if h.state == kvHeld {
			c.state.ExpiredLeases++
			c.end(h, kvGone)
		}
	}
}

// free lets go of KV that will not be read, if it is still held.
func (c *Cluster) free(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.kv.byID[id]; h != nil && h.state == kvHeld {
		c.state.FreedKV++
		c.end(h, kvGone)
	}
}

// dropAllKV lets go of everything uncounted. The caller holds mu.
func (c *Cluster) dropAllKV() {
	for _, h := range c.kv.byID {
		if h.state == kvHeld {
			c.end(h, kvGone)
		}
	}
}

// loading is how a decode worker came by its prompt's KV.
type loading int

const (
	recomputed loading = iota // it has computed the prompt itself
	loaded                    // it has read prefill's KV
	mixedUp                   // it has read the KV of another request
	failed                    // it has none, and gives up
)

// loadKV is what a decode worker does with the transfer params of its request. A
// breach of the contract is returned in words.
func (c *Cluster) loadKV(params json.RawMessage, p *prompt, lose bool) (how loading, breach string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notify()
	switch x := exchanges[c.options.KV]; {
	case x != nil:
		how, breach = x.load(c, params, p, lose)
	case len(params) == 0:
		how = recomputed
	case c.options.KV == KVSharedStorage:
		how, breach = c.loadStored(params, p)
	default:
		how, breach = c.loadRemote(params, p, lose)
	}
	switch how {
	case recomputed:
		c.state.Recomputed++
	case loaded:
		c.state.FetchedKV++
	case mixedUp:
		c.state.ReusedHandoffs++
	case failed:
		c.state.FailedLoads++
	}
	return how, breach
}

func (c *Cluster) loadStored(params json.RawMessage, p *prompt) (loading, string) {
	if !same(params, json.RawMessage(`{"do_remote_decode":false,"do_remote_prefill":true}`)) {
		return failed, "kv_transfer_params are not those of " + KVSharedStorage
	}
	if !c.kv.stored.members[p.key] {
		return recomputed, ""
	}
	return loaded, ""
}

func (c *Cluster) loadRemote(params json.RawMessage, p *prompt, lose bool) (loading, string) {
	id, ok := c.fetchID(params)
	if !ok {
		return recomputed, "kv_transfer_params do not ask to fetch anything"
	}
	if id == "" {
		return failed, "kv_transfer_params do not say what to fetch"
	}
	breach := ""
	if h := c.kv.byID[id]; h != nil && !same(params, presented(h.ticket)) {
		breach = "kv_transfer_params are not what prefill gave out"
	}
	return c.take(id, p, lose, breach)
}

// fetchID returns which KV transfer params ask to fetch; false if none.
func (c *Cluster) fetchID(params json.RawMessage) (string, bool) {
	fields, _, err := parseObject(params)
	if err != nil {
		return "", false
	}
	wanted, err := fields.truth("do_remote_prefill")
	if err != nil || !wanted {
		return "", false
	}
	name := "remote_request_id"
	if x := exchanges[c.options.KV]; x != nil {
		name = x.idField
	}
	id, err := fields.text(name)
	return id, err == nil
}

// presented is the ticket as decode must show it.
func presented(ticket json.RawMessage) json.RawMessage {
	fields, _, err := parseObject(ticket)
	if err != nil {
		panic(err) // we wrote it
	}
	fields["do_remote_decode"] = json.RawMessage("false")
	fields["do_remote_prefill"] = json.RawMessage("true")
	return encode(fields)
}
