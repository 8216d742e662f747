package phases

import (
	"context"
	"net/http"

	"github.com/llm-coordinator/coordinator/connectors/ec"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/kwargs"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// pixels makes the prefill leg of one request smaller: of media whose embeddings
// the worker is told where to fetch it sends what it needs besides, and not the
// rendered tensors, which only an encoder would read. It is used by one task.
//
// A worker that cannot fetch an embedding encodes the image itself, which it
// cannot without the tensor. So a prefill that fails is sent once more, with all.
type pixels struct {
	*prefill
	descriptors wire.Text
	memory      *budget.Account
	charged     int64
}

// pixels returns how the leg of a request is made smaller; nil: not at all.
// embeddings is what the leg says of them. Those that were pushed can be read once,
// so that a second leg would be in vain.
func (p *prefill) pixels(r *Request, format wire.Format, embeddings wire.Text) *pixels {
	if _, pushes := p.ec.(ec.Pusher); pushes || format != wire.TokensIn || embeddings == nil || !p.ec.Described() {
		return nil
	}
	return &pixels{prefill: p, descriptors: r.Encoded.Descriptors, memory: r.Memory}
}

// call sends the leg, whose body is made of src.
func (x *pixels) call(ctx context.Context, up *gateway.Upstream, leg gateway.Leg, src *wire.Source) (answer []byte, sent gateway.Sent, err error) {
	if x == nil || !x.reduce(src, leg.Journal.Note) {
		return up.Call(ctx, leg)
	}
	defer func() {
		x.memory.Refund(x.charged)
		x.charged, src.Reduced = 0, nil // another worker may be next
	}()
	leg.Spare = true
	answer, sent, err = up.Call(ctx, leg)
	if err == nil || !sent.WorkerFailed() || !mayMissPixels(sent.Status) || ctx.Err() != nil {
		return answer, sent, err
	}
	if !up.Retry(ctx, 1, "pixels", "", leg.Deadline) {
		if ctx.Err() == nil {
			if sent.Status/100 != 4 {
				up.Blame()
			}
			x.metrics.pixelsResent.WithLabelValues("refused").Inc()
		}
		return nil, sent, err
	}
	src.Reduced, leg.Spare, leg.Resend = nil, false, gateway.ResendNever
	leg.Attempt += sent.Attempts
	leg.Journal.Note("prefill failed without pixels: sent again with them")
	answer, all, err := up.Call(ctx, leg)
	result := "ok"
	if err != nil {
		result = "failed"
	}
	x.metrics.pixelsResent.WithLabelValues(result).Inc()
	all.Attempts += sent.Attempts
	all.Reached = true
	return answer, all, err
}

// mayMissPixels reports whether a worker may have failed with this status for what was
// left out. Which it is of 400 and 422 nobody can tell: a worker says so too of items
// that it does not have, and of what it does not understand. The rest of 4xx is about
// who asks, where, and how much.
func mayMissPixels(status int) bool {
	return status/100 != 4 || status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
}

// What is sent of an item, and why it is all of it.
const (
	sentMetadata = "metadata"
	sentStripped = "stripped"
	sentFull     = "full"

	noDescriptor = "no_descriptor"
	noMetadata   = "no_metadata"
	notStripped  = "not_stripped"
	noMemory     = "no_memory"
)

// reduce has the leg carry less, if it can, and reports whether it does.
func (x *pixels) reduce(src *wire.Source, note func(string)) bool {
	items := src.Tokens.Features.Items
	to := make([]wire.Reduction, len(items))
	smaller, said := false, map[string]bool{}
	for i := range items {
		sent, reason := x.reduceItem(&items[i], &to[i])
		smaller = smaller || sent != sentFull
		x.metrics.pixels.WithLabelValues(sent, reason).Inc()
		if reason != "" && reason != noMetadata && !said[reason] { // that is as configured
			said[reason] = true
			note("pixels sent to prefill: " + reason)
		}
	}
	if smaller {
		src.Reduced = src.Tokens.Features.Reduce(to)
	}
	return smaller
}

// reduceItem says what is sent of one item, and if that is all of it, why.
func (x *pixels) reduceItem(item *wire.Span, to *wire.Reduction) (sent, reason string) {
	switch {
	case !x.fetchable(item.Hash):
		return sentFull, noDescriptor
	case item.Metadata != nil:
		to.Metadata = item.Metadata
		return sentMetadata, ""
	case !x.strip:
		return sentFull, noMetadata
	}
	text, err := kwargs.Strip(item.Kwargs[1 : len(item.Kwargs)-1])
	if err != nil {
		return sentFull, notStripped
	}
	size := int64(len(text) + len(`""`))
	if !x.memory.TryCharge(size) {
		return sentFull, noMemory
	}
	x.charged += size
	to.Kwargs = append(append(append(make([]byte, 0, size), '"'), text...), '"')
	return sentStripped, ""
}

// fetchable reports whether there is a descriptor of a medium that names where
// its embedding is.
func (x *pixels) fetchable(hash []byte) bool {
	own := wire.Descriptor(x.descriptors, hash)
	if wire.IsNull(own) {
		return false
	}
	field := x.ec.HostField()
	host, ok := wire.Unquote(wire.Lookup(own, field))
	return field == "" || ok && host != ""
}
