package phases

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepDecode = "decode"

func init() { Register(stepDecode, NewDecode) }

// DecodeParams are the parameters of a decode step.
type DecodeParams struct {
	// KVConnector, if set, is used instead of the pipeline's.
	KVConnector string `toml:"kv_connector"`
}

// decode sends the client's request to a decode worker, with the hand-off if
// there is one, and streams the answer to the client as it comes.
type decode struct {
	upstream *gateway.Upstream
	kv       kv.Connector
	metrics  *Metrics
}

// NewDecode builds a decode phase.
func NewDecode(deps Deps, params Params) (Phase, error) {
	p := DecodeParams{KVConnector: deps.KVConnector}
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	connector, err := kv.New(p.KVConnector)
	if err != nil {
		return nil, params.Errorf("kv_connector", "%v", err)
	}
	return &decode{upstream: deps.Decode, kv: connector, metrics: deps.Metrics}, nil
}

func (p *decode) Name() string { return stepDecode }

// String describes the phase for operators.
func (p *decode) String() string { return "kv connector " + p.kv.Name() }

// Admit refuses a request at the door while no decode may be sent.
func (p *decode) Admit(*Request) error { return p.upstream.Ready() }

// handoffState tells whether a worker may have a hand-off. Decode's task writes
// it, the supervisor reads it when the task is home.
type handoffState struct{ reached atomic.Bool }

func (h *handoffState) get() bool { return h != nil && h.reached.Load() }

func (p *decode) Plan(r *Request) (Plan, error) {
	proto, src, out := r.Protocol, r.source(), r.Out
	var params wire.Text
	if r.Prefilled.Ran {
		params = p.kv.Decode(r.Prefilled.Transfer)
	}
	state := &handoffState{}
	r.Decoded.reached, r.Decoded.once = state, params != nil && p.kv.Pins()
	leg := gateway.Leg{Path: proto.Path, Query: r.Query, Header: r.Header, ID: r.ID, Attempt: r.Decoded.Attempts,
		Body:     func(string) wire.Payload { return proto.DecodeLeg(src, params) },
		Permit:   r.decodePermit,
		SendOnce: r.Decoded.once}
	return Plan{Tasks: []Task{{Pool: PoolDecode, Run: func(ctx context.Context) (Result, error) {
		answer, sent, err := p.upstream.Open(ctx, leg)
		state.reached.Store(sent.Reached)
		if err != nil {
			return nil, err
		}
		defer answer.Close()
		return Decoded{Status: answer.Status, Attempts: sent.Attempts}, relay(ctx, answer, out)
	}}}}, nil
}

// relay streams an answer to the way out.
func relay(ctx context.Context, answer *gateway.Answer, out *Response) error {
	head := &Head{Status: answer.Status, Header: wire.ResponseHeaders(answer.Header)}
	if err := out.Send(ctx, Item{Head: head}); err != nil {
		return err
	}
	for {
		c := NewChunk()
		err := c.Fill(answer.Read)
		if c.n == 0 {
			c.Free()
		} else if err := out.Send(ctx, Item{Chunk: c}); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *decode) Join(r *Request, results []Result) (Verdict, error) {
	found := results[0].(Decoded)
	r.Decoded.Status = found.Status
	r.Decoded.Attempts += found.Attempts
	return Done, nil
}

// Recover starts the request again from prefill, once, if decode went out on a
// connection that turned out dead: whether a worker had read the hand-off is
// not known, and a second decode with it could read another prompt's KV.
func (p *decode) Recover(r *Request, err error) (Verdict, error) {
	if !errors.Is(err, gateway.ErrDeadConnection) || !r.Decoded.once || r.Decoded.Reruns > 0 {
		return Verdict{}, err
	}
	r.Decoded.Reruns++
	r.Decoded.Attempts++ // it was sent once
	r.decodePermit = nil
	p.metrics.reruns.WithLabelValues("dead_connection").Inc()
	r.note("run again from prefill: decode's connection was dead")
	return Verdict{Again: stepPrefill}, nil
}
