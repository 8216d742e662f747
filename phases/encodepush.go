package phases

import (
	"context"
	"net/http"
	"sync"

	"github.com/llm-coordinator/coordinator/connectors/ec"
	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// pusher is what an encode phase has besides for a connector whose encode workers
// push embeddings: it chooses the prefill worker that they push to, for each request
// with images, before the first encode leg is sent. Prefill goes to that worker then.
type pusher struct {
	ec.Pusher
	boot *bootstrap
	port int // where prefill workers take embeddings
}

// Needs is what the bootstrap has to know of the connector.
func (p *pusher) Needs() kv.Needs { return kv.Needs{Peer: true, Port: kv.Port{Default: p.port}} }

// unpushed is a connector that pushes nothing, as far as a bootstrap has to know it.
type unpushed struct{ ec.Connector }

func (unpushed) Needs() kv.Needs { return kv.Needs{} }

// newPusher reads the settings of a connector that pushes; it is nil for others, which
// must not have them.
func newPusher(deps Deps, params Params, p EncodeParams, c ec.Connector) (*pusher, error) {
	pushing, ok := c.(ec.Pusher)
	if !ok {
		if p.ConsumerPort != 0 {
			return nil, params.Errorf("consumer_port", "%s pushes nothing to prefill workers: remove it", c.Name())
		}
		_, err := newBootstrap(deps, params, p.BootstrapFrom, p.BootstrapHeader, unpushed{c})
		return nil, err
	}
	if p.ConsumerPort < 1 || p.ConsumerPort > maxPort {
		return nil, params.Errorf("consumer_port", "%s needs the port where prefill workers take embeddings (their ec_port), 1 to 65535", c.Name())
	}
	made := &pusher{Pusher: pushing, port: p.ConsumerPort}
	var err error
	made.boot, err = newBootstrap(deps, params, p.BootstrapFrom, p.BootstrapHeader, made)
	return made, err
}

// bootstraps returns where the step finds its prefill workers, nil if it need not.
func (p *encode) bootstraps() *bootstrap {
	if p.pusher == nil {
		return nil
	}
	return p.pusher.boot
}

// consumer is the prefill worker of one run of encode, which the first of its tasks
// finds. The others wait for it: they have nothing to do without.
type consumer struct {
	once sync.Once
	at   endpoint
	err  error
}

func (c *consumer) find(ctx context.Context, b *bootstrap, named string, leg gateway.Leg) (endpoint, error) {
	c.once.Do(func() { c.at, c.err = b.find(ctx, named, leg) })
	return c.at, c.err
}

// pushed is what became of one encode leg that pushes.
type pushed struct {
	item wire.Text // nil: nothing was pushed
	to   endpoint
	said http.Header // of the answer, if it has what is forwarded
}

// planPushes makes a task for each place of an image: each has an id of its own, so
// that an image that is there twice is encoded twice.
func (p *encode) planPushes(r *Request, src wire.Source, format wire.Format) Plan {
	proto, named := r.Protocol, r.namedWorker()
	to, trials := &consumer{}, &gateway.Trials{}
	asking := gateway.Leg{Path: proto.LegPath(format), Header: r.Header, ID: r.ID, Attempt: int(r.Reruns), Deadline: r.Deadline, Journal: r.Journal,
		Body: func(id string) wire.Payload { return proto.ReserveLeg(src, format, id, wire.Transfers{}) }}
	plan := Plan{MaxParallel: p.parallel}
	for i, image := range src.Tokens.Features.Items {
		leg := gateway.Leg{Path: proto.LegPath(format), Header: r.Header, ID: r.ID, Attempt: int(r.Reruns), Check: wire.CheckAnswer, Trials: trials, Deadline: r.Deadline, Journal: r.Journal}
		plan.Tasks = append(plan.Tasks, Task{Pool: PoolEncode, Run: func(ctx context.Context) (Result, error) {
			at, err := to.find(ctx, p.pusher.boot, named, asking)
			if err != nil {
				return nil, err
			}
			var push ec.Push // of the last attempt
			leg.Body = func(string) wire.Payload {
				push = p.pusher.Push(at.peer.Host, p.pusher.port, image.Hash)
				return proto.PushLeg(src, format, i, push.Encode())
			}
			return p.push(ctx, leg, at, func() ec.Push { return push })
		}})
	}
	if len(plan.Tasks) > 0 {
		p.metrics.encodes.Observe(float64(len(plan.Tasks)))
	}
	return plan
}

// push has one image encoded and pushed.
func (p *encode) push(ctx context.Context, leg gateway.Leg, at endpoint, last func() ec.Push) (Result, error) {
	answer, sent, err := p.upstream.Call(ctx, leg)
	if err != nil {
		return nil, err
	}
	params, _ := wire.Descriptors(answer)
	item, err := last().Item(params)
	if err != nil {
		return nil, wire.Faultf(wire.UpstreamFailed, "the answers of encode cannot be used").Because(err)
	}
	return pushed{item: item, to: at, said: p.forward.said(sent.Header)}, nil
}

// joinPushes notes what was pushed, and where to: prefill goes there.
func (p *encode) joinPushes(r *Request, results []Result) error {
	items := make([]wire.Text, len(results))
	var said []http.Header
	for i, result := range results {
		found := result.(pushed)
		items[i] = found.item
		if found.item == nil {
			p.metrics.ecMissing.Inc()
			r.note("encode gave no descriptor")
		}
		name := found.to.text()
		r.worker = &name
		if found.said != nil {
			said = append(said, found.said)
		}
	}
	p.forward.hear(r, stepEncode, said...)
	r.Encoded = Encoded{Descriptors: p.pusher.Items(items)}
	return nil
}
