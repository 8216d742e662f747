package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// ECMooncake is a value of [Options.EC]: encode pushes an embedding to the prefill
// worker that its leg names, under an id that its leg names.
const ECMooncake = "ec-mooncake"

// push is an embedding on its way to the prefill worker. Guarded by Cluster.mu once
// it is in mediaMemory.
type push struct {
	hash string // that the leg says
	id   string
	item json.RawMessage // what encode answered of it
	read bool
}

// takePush takes what an ec-mooncake encode is told out of its body, whose form is
// then that of any encode. A worker that is not told it pushes nothing.
func (l *leg) takePush() error {
	if l.cluster.options.EC != ECMooncake {
		return nil
	}
	params := l.transferParams("ec_transfer_params")
	l.body = maps.Clone(l.body)
	delete(l.body, "ec_transfer_params")
	if l.api.tokensIn {
		l.sampling = maps.Clone(l.sampling)
		delete(l.sampling, "extra_args")
	} else {
		l.sampling = l.body
	}
	o, _, _ := parseObject(params)
	items, _ := o.list("ec_items")
	if len(items) != 1 {
		return l.refusePush("an encode has one image and %d ec_items", len(items))
	}
	l.pushing = &push{hash: textAt(items[0], "mm_hash"), id: textAt(items[0], "transfer_id")}
	l.cluster.mu.Lock()
	consumer := "tcp://" + l.cluster.prefillAddress()
	l.cluster.mu.Unlock()
	want := fmt.Appendf(nil, `{"consumer_zmq":%q,"ec_items":[{"mm_hash":%s,"transfer_id":%s}]}`, consumer, encode(l.pushing.hash), encode(l.pushing.id))
	switch {
	case l.pushing.hash == "" || l.pushing.id == "" || !same(params, want):
		return l.refusePush("ec_transfer_params do not say what to push to this prefill worker")
	case !l.cluster.claim(l.pushing.id):
		return l.refusePush("transfer_id %s was used before", l.pushing.id)
	}
	return nil
}

func (l *leg) refusePush(format string, args ...any) error {
	l.violate(format, args...)
	return badValue("ec_transfer_params", format, args...)
}

// checkPush refuses a push of another image than the one that is encoded.
func (l *leg) checkPush(p *prompt) error {
	if l.pushing != nil && l.pushing.hash != p.images[0].hash {
		return badValue("ec_transfer_params", "mm_hash is not that of the image.")
	}
	return nil
}

// pushedParams keeps a pushed embedding for prefill and returns what encode answers.
// The caller holds mu.
func (c *Cluster) pushedParams(pushed *push, im *image) json.RawMessage {
	pushed.item = fmt.Appendf(nil, `{"x_serial":%d,"mm_hash":%s,"transfer_id":%s,"image_grid_thw":[1,2,%d],"x_opaque":{"z":9007199254740993,"a":1.0}}`,
		c.nextID(), encode(im.hash), encode(pushed.id), 2*im.length)
	c.media.pushed[pushed.id] = pushed
	c.state.UnreadPushes++
	if oldest, full := c.media.pushes.add(pushed.id); full {
		delete(c.media.pushed, oldest)
	}
	return encode(map[string][]json.RawMessage{"ec_items": {pushed.item}})
}

// receiveEmbeddings is what an ec-mooncake prefill does: each of its ec_items is for
// the image at the same place. It waits for what was not pushed to it, in vain.
func (l *leg) receiveEmbeddings(p *prompt) error {
	params := l.transferParams("ec_transfer_params")
	o, _, _ := parseObject(params)
	items, _ := o.list("ec_items")
	if params != nil && (len(o) != 1 || len(items) == 0) {
		return l.refusePush("ec_transfer_params have no ec_items, or more than these")
	}
	c := l.cluster
	c.mu.Lock()
	breach := ""
	for i := 0; i < len(items) && breach == ""; i++ {
		breach = c.receive(items, i, p)
	}
	c.state.LocalEncodes += max(0, len(p.images)-len(items))
	c.notify()
	c.mu.Unlock()
	if breach != "" {
		l.violate("%s", breach)
		return &refusal{http.StatusInternalServerError, "InternalServerError", breach, "ec_transfer_params"}
	}
	return nil
}

// receive takes one pushed embedding, and says what is wrong with it. The caller
// holds mu.
func (c *Cluster) receive(items []json.RawMessage, i int, p *prompt) string {
	pushed := c.media.pushed[textAt(items[i], "transfer_id")]
	switch {
	case pushed == nil:
		return "nothing was pushed under a transfer_id of ec_items"
	case pushed.read:
		return "ec_items have a transfer_id that was used before"
	case i >= len(p.images):
		return "there are more ec_items than images"
	case len(items) == len(p.images) && p.images[i].hash != pushed.hash, !p.hashes()[pushed.hash]:
		return "ec_items are not in the order of the images"
	case !same(items[i], pushed.item):
		return "ec_items are not what encode gave out"
	}
	pushed.read = true
	c.state.UnreadPushes--
	return ""
}
