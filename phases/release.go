package phases

import (
	"context"
	"time"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// unread returns the prefill whose hand-off no decode worker has; nil if there is no
// hand-off, or a decode worker may have it. It may change until prefill and decode have
// ended.
func (r *Request) unread() *Prefilled {
	found := r.Decoded.reached.prefilled()
	if found == nil {
		found = &r.Prefilled
	}
	if found.Handoff == nil || r.Decoded.reached.get() {
		return nil
	}
	return found
}

// Release has a decode worker fetch KV that no decode will: prefill has
// answered with a hand-off, and decode never reached a worker. The leg asks for
// one token and its answer is thrown away; the prefill worker's memory is free
// seconds later instead of at the end of the lease.
func (p *prefill) Release(r *Request) []Task {
	if !p.release || !p.kv.Pins() {
		return nil
	}
	return r.release(p.decode, p.lease, p.metrics)
}

// Release does so for a decode that was sent beside its prefill.
func (p *prefillDecode) Release(r *Request) []Task {
	if !p.release || !p.kv.Pins() {
		return nil
	}
	return r.release(p.decode.upstream, p.decode.lease, p.metrics)
}

func (r *Request) release(decode *gateway.Upstream, lease time.Duration, m *Metrics) []Task {
	found := r.unread()
	if found == nil || lease > 0 && time.Since(found.At) > lease {
		return nil
	}
	proto, src, handoff := r.Protocol, r.source(), *found.Handoff
	leg := gateway.Leg{Path: proto.Path, Query: r.Query, Header: r.Header, ID: r.ID + "-release", Resend: gateway.ResendUnreached, Unjudged: true,
		Body: func(string) wire.Payload { return proto.ReleaseLeg(src, handoff) }}
	return []Task{{Pool: PoolRelease, Over: r.keep(), Run: func(ctx context.Context) (Result, error) {
		ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		_, _, err := decode.Call(ctx, leg)
		result := "released"
		if err != nil {
			result = "failed"
		}
		m.released.WithLabelValues(result).Inc()
		return nil, err
	}}}
}

// releaseTimeout bounds a release with all its attempts. It is the default lease of
// vLLM's NixlConnector: afterwards that worker has let go by itself. Mooncake's keeps
// KV for longer, but a gateway without a decode worker for so long has other troubles.
const releaseTimeout = 30 * time.Second
