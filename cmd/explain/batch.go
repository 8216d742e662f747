package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// batch says what happens to a request of several prompts, or "" if it has one.
func (o *observed) batch() string {
	switch {
	case o.prompts < 2:
		return ""
	case len(o.queue.submitted) > 0:
		return fmt.Sprintf("%d prompts in one request: it waits as it is, and is taken apart when the broker sends it", o.prompts)
	}
	return fmt.Sprintf("%d prompts in one request: each goes through the steps by itself, its legs by the id %s and so on, and counts as a request; their answers are merged into one",
		o.prompts, wire.PartID(o.header.Get(wire.HeaderRequestID), 0))
}

// sortLegs puts the legs of a batch, which come in any order, in that of its prompts.
func (o *observed) sortLegs() {
	if o.prompts < 2 {
		return
	}
	id := o.header.Get(wire.HeaderRequestID)
	prompt := map[string]int{}
	for i := range o.prompts {
		prompt[wire.PartID(id, i)] = i
	}
	slices.SortStableFunc(o.legs, func(a, b seen) int {
		return cmp.Compare(prompt[a.header.Get(wire.HeaderRequestID)], prompt[b.header.Get(wire.HeaderRequestID)])
	})
}

// streams reports whether a leg asks for a stream.
func (l *seen) streams() bool {
	body, err := wire.ParseBody(l.body)
	return err == nil && strings.TrimSpace(string(body.Get("stream"))) == "true"
}
