package phases

import (
	"io"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// cachedTokens has an answer say how much of its prompt was cached as prefill did:
// a decode worker counts all KV that it has fetched as cached.
type cachedTokens struct {
	count   int
	results *prometheus.CounterVec
}

// What became of the cached tokens in an answer.
const (
	cachedRewritten = "rewritten"
	cachedNoUsage   = "no_usage"   // the answer has no usage
	cachedEncoded   = "encoded"    // it could not be read
	cachedNotSaid   = "no_prefill" // prefill's answer does not say
	cachedNotHere   = "unsupported"
)

// cachedTokens is what the answer of decode is to say, nil: what the worker does.
// That is right if it has computed the prompt itself.
func (p *decode) cachedTokens(r *Request) *cachedTokens {
	if !p.cached || r.Prefilled.Handoff == nil {
		return nil
	}
	if r.Batch != nil || r.Protocol.Typed() {
		p.metrics.cachedTokens.WithLabelValues(cachedNotHere).Inc()
		r.note("cached tokens not rewritten: not in the answer to a batch, or of the Responses API")
		return nil
	}
	count, said := r.Prefilled.cachedTokens()
	if !said {
		p.metrics.cachedTokens.WithLabelValues(cachedNotSaid).Inc()
		r.note("prefill did not say how much was cached")
		return nil
	}
	return &cachedTokens{count: count, results: p.metrics.cachedTokens}
}

// cachedTokens returns what prefill has said of them.
func (p *Prefilled) cachedTokens() (count int, said bool) { return int(p.cached) - 1, p.cached > 0 }

// setCachedTokens keeps what an answer of prefill says of them.
func (p *Prefilled) setCachedTokens(answer []byte) {
	if n, said := wire.CachedTokens(answer); said {
		p.cached = int32(n) + 1 // what overflows was not said
	}
}

// edit returns what rewrites an answer with this head, whose length it takes back;
// nil: the answer has nothing to rewrite.
func (c *cachedTokens) edit(head *Head, w wayOut) *usageEdit {
	if c == nil || head.Status/100 != 2 {
		return nil
	}
	if wire.IsEncoded(head.Header) {
		c.results.WithLabelValues(cachedEncoded).Inc()
		w.journal.Note("cached tokens not rewritten: the answer is encoded")
		return nil
	}
	delete(head.Header, "Content-Length")
	return &usageEdit{edit: wire.NewUsageEdit(c.count), results: c.results}
}

// usageEdit rewrites an answer as it is read. It belongs to one goroutine at a time.
type usageEdit struct {
	edit    *wire.UsageEdit
	results *prometheus.CounterVec
	pending []byte // rewritten, and not read yet
	err     error  // how the answer ended, once it has
}

// read reads what comes from an answer, rewritten.
func (u *usageEdit) read(p []byte, from func([]byte) (int, error)) (n int, err error) {
	for len(u.pending) == 0 && u.err == nil {
		n, err := from(p)
		if u.pending = u.edit.Take(p[:n]); err != nil {
			u.ended(err)
		}
	}
	n = copy(p, u.pending) // onto itself, if nothing was to be rewritten
	if u.pending = u.pending[n:]; len(u.pending) == 0 {
		err = u.err
	}
	return n, err
}

// ended lets go of what was kept back, and counts what was done.
func (u *usageEdit) ended(err error) {
	u.err, u.pending = err, slices.Concat(u.pending, u.edit.End())
	if err != io.EOF {
		return
	}
	result := cachedNoUsage
	if u.edit.Edits() > 0 {
		result = cachedRewritten
	}
	u.results.WithLabelValues(result).Inc()
}
