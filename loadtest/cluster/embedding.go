package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// bytesPerToken is the size of an embedding's row.
const bytesPerToken = 4096 * 2

// giveEmbedding keeps an image's embedding for prefill and returns the
// ec_transfer_params that tell how to fetch it.
func (l *leg) giveEmbedding(im *image) json.RawMessage {
	c := l.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notify()
	c.state.EncodeCalls++
	params := l.fault.BadDescriptors
	switch {
	case params != nil:
	case c.options.EC == ECMooncake:
		params = c.pushedParams(l.pushing, im)
	case c.options.EC == ECSharedStorage:
		c.media.stored.add(im.hash)
		params = json.RawMessage("null")
	default:
		params = encode(map[string]json.RawMessage{im.hash: c.descriptor(im)})
	}
	given, _, _ := parseObject(params) // what is no object gives nothing
	for _, request := range c.requests.all(l.record.RequestID) {
		for hash, descriptor := range given {
			if string(descriptor) != "null" {
				request.descriptors[hash] = append(request.descriptors[hash], descriptor)
			}
		}
	}
	l.record.Descriptors = params
	return params
}

// descriptor writes what the NIXL connector says of an embedding. As with
// [Cluster.ticket] the keys are not sorted and there are odd numbers. The caller
// holds mu.
func (c *Cluster) descriptor(im *image) json.RawMessage {
	return fmt.Appendf(nil, `{"size_bytes":%d,"peer_port":5601,"metadata":{"x_serial":%d,"image_grid_thw":[1,2,%d],`+
		`"x_opaque":{"z":9007199254740993,"a":1.0}},"item_indices":[0],"peer_host":"10.0.0.2"}`,
		im.length*bytesPerToken, c.nextID(), 2*im.length)
}

// fetchEmbeddings is what prefill does with the ec_transfer_params of its request:
// it fetches what they describe and encodes the rest itself. It refuses what no
// encode has given out for this request.
func (l *leg) fetchEmbeddings(p *prompt) error {
	if l.cluster.options.EC == ECMooncake {
		return l.receiveEmbeddings(p)
	}
	params := l.transferParams("ec_transfer_params")
	presented, _, err := parseObject(params)
	if params != nil && err != nil {
		return badSchema("ec_transfer_params", "ec_transfer_params: Input should be a valid dictionary")
	}
	breach := ""
	switch {
	case params != nil && l.cluster.options.EC == ECSharedStorage:
		breach = "ec_transfer_params with " + ECSharedStorage
	case params != nil && len(presented) == 0:
		l.violate("ec_transfer_params are empty")
	default:
		breach = l.unknownDescriptor(presented, p)
	}
	if breach != "" {
		l.violate("%s", breach)
		return badValue("ec_transfer_params", "%s", breach)
	}
	if l.fault.LoseEmbeddings {
		presented = nil
	}
	l.countLocalEncodes(presented, p)
	return l.encodeLocally(presented, p)
}

// unknownDescriptor says which descriptor is not one that an encode of the request
// gave out for an image of the prompt; "" if all are.
func (l *leg) unknownDescriptor(presented object, p *prompt) string {
	c, hashes := l.cluster, p.hashes()
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := c.requests.all(l.record.RequestID)
	for hash, descriptor := range presented {
		if !hashes[hash] {
			return "ec_transfer_params for " + hash + ", which is no image of the prompt"
		}
		known := false
		for _, request := range requests {
			for _, given := range request.descriptors[hash] {
				known = known || bytes.Equal(given, descriptor)
			}
		}
		if !known {
			return "ec_transfer_params for " + hash + " are not what encode gave out"
		}
	}
	return ""
}

func (l *leg) countLocalEncodes(presented object, p *prompt) {
	c := l.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for hash := range p.hashes() {
		if _, ok := presented[hash]; !ok && !c.media.stored.members[hash] {
			c.state.LocalEncodes++
		}
	}
	c.notify()
}

// hashes are the distinct hashes of the prompt's images.
func (p *prompt) hashes() map[string]bool {
	set := map[string]bool{}
	for i := range p.images {
		set[p.images[i].hash] = true
	}
	return set
}
