package phases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench runs phases by hand, one after the other, against a simulated cluster:
// what an engine does is not what is tested here.
type bench struct {
	t       *testing.T
	cluster *cluster.Cluster
	deps    Deps
	origins []*gateway.Origin
}

func newBench(t *testing.T, kv string) *bench {
	t.Helper()
	b := &bench{t: t, cluster: cluster.New(cluster.Options{KV: kv, Lease: time.Minute})}
	if err := b.cluster.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	metrics := gateway.NewMetrics(nil)
	upstream := func(o gateway.OriginSettings, s gateway.UpstreamSettings) (*gateway.Upstream, error) {
		at, err := gateway.NewOrigin(o)
		if err != nil {
			return nil, err
		}
		b.origins = append(b.origins, at)
		return gateway.NewUpstream(at, s, metrics), nil
	}
	profile := func(name string) *gateway.Upstream {
		u, err := upstream(gateway.OriginSettings{Address: b.cluster.URL(), MaxIdle: 4},
			gateway.UpstreamSettings{Name: name, ProfileHeader: "EPP-Profile", Profile: name, Timeout: 10 * time.Second,
				Breaker: gateway.BreakerSettings{Enabled: true, ConsecutiveFailures: 1, Interval: time.Minute, OpenTimeout: time.Hour, HalfOpenRequests: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	b.deps = Deps{Prefill: profile("prefill"), Decode: profile("decode"), NewUpstream: upstream, KVConnector: kv, ECConnector: "ec-nixl", UseOpenAIFormat: true,
		OnClose: func(func()) {}, Metrics: NewMetrics(nil)}
	t.Cleanup(func() {
		for _, o := range b.origins {
			o.Close()
		}
		b.cluster.Close()
	})
	return b
}

// params are those of a step, by JSON: the loader has tests of its own.
type params string

func (p params) Decode(into any) error {
	if p == "" {
		return nil
	}
	return json.Unmarshal([]byte(p), into)
}

func (p params) Errorf(key, format string, args ...any) error {
	return fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...))
}

func (b *bench) phase(f Factory, p params) Phase {
	b.t.Helper()
	ph, err := f(b.deps, p)
	if err != nil {
		b.t.Fatal(err)
	}
	return ph
}

func (b *bench) request(p *wire.Protocol, text string) *Request {
	b.t.Helper()
	body, err := wire.ParseBody([]byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	prompt, err := p.Prompt(body)
	if err != nil {
		b.t.Fatal(err)
	}
	return &Request{ID: "the-id", Protocol: p, Body: body, Prompt: prompt, Header: http.Header{}, Out: NewResponse()}
}

// run plans a phase, runs its tasks, and joins them.
func run(r *Request, ph Phase) (verdict Verdict, tasks int, err error) {
	plan, err := ph.Plan(r)
	if err != nil || len(plan.Tasks) == 0 {
		return Next, 0, err
	}
	if plan.Placed != nil {
		if err := plan.Placed(); err != nil {
			return Next, 0, err
		}
	}
	results := make([]Result, len(plan.Tasks))
	for i, task := range plan.Tasks {
		if results[i], err = task.Run(context.Background()); err != nil {
			return Next, len(plan.Tasks), err
		}
	}
	verdict, err = ph.Join(r, results)
	return verdict, len(plan.Tasks), err
}

const chat = `{"model":"demo-model","messages":[{"role":"user","content":"one two"}]}`

func TestRenderFindsTheTokens(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	ph := b.phase(NewRender, params(`{"Address":"`+b.cluster.URL()+`"}`))
	r := b.request(wire.Chat, chat)
	if _, tasks, err := run(r, ph); err != nil || tasks != 1 || r.Rendered.Tokens.Count == 0 {
		t.Errorf("%v, %d tasks, %+v", err, tasks, r.Rendered)
	}
	given := b.request(wire.Completions, `{"model":"demo-model","prompt":[5, 6,7]}`)
	if _, tasks, err := run(given, ph); err != nil || tasks != 0 || string(given.Rendered.Tokens.IDs) != "[5, 6,7]" || given.Rendered.Tokens.Count != 3 {
		t.Errorf("%v, %d tasks, %s", err, tasks, given.Rendered.Tokens.IDs)
	}
	if n := b.cluster.Count(cluster.Render); n != 1 {
		t.Errorf("%d renders", n)
	}
}

func TestPromptsOverTheLimitAreRefused(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	ph := b.phase(NewRender, params(`{"Address":"`+b.cluster.URL()+`","MaxTotalTokens":2}`))
	for _, r := range []*Request{b.request(wire.Chat, chat), b.request(wire.Completions, `{"prompt":[5,6,7]}`)} {
		if _, _, err := run(r, ph); err == nil || wire.FaultOf(err).Kind != wire.LimitExceeded {
			t.Errorf("%s: %v", r.Protocol.Name, err)
		}
	}
}

func TestRenderParams(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	for text, want := range map[params]string{
		``:                                     "address: required",
		`{"Address":"render"}`:                 "address: ",
		`{"Address":"http://r/","Timeout":-1}`: "timeout: ",
		`{"Address":"http://r/","MaxIdleConnsPerHost":-1}`: "max_idle_conns_per_host: ",
		`{"Address":"http://r/","MaxTotalTokens":-1}`:      "max_total_tokens: ",
	} {
		if _, err := NewRender(b.deps, text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, f := range []Factory{NewPrefill, NewDecode} {
		if _, err := f(b.deps, params(`{"KVConnector":"kv-sglang"}`)); err == nil || !strings.HasPrefix(err.Error(), `kv_connector: kv-sglang needs prefill and decode in flight together: use one step "prefill-decode"`) {
			t.Errorf("%v", err)
		}
	}
}

// drain reads what decode has put on the way out.
func drain(o *Response) (head *Head, text string) {
	for {
		select {
		case it := <-o.Items():
			if it.Head != nil {
				head = it.Head
			}
			if it.Chunk != nil {
				text += string(it.Chunk.Bytes())
				it.Chunk.Free()
			}
		default:
			return head, text
		}
	}
}

func TestPrefillHandsOverToDecode(t *testing.T) {
	for _, kv := range []string{cluster.KVNixl, cluster.KVSharedStorage} {
		t.Run(kv, func(t *testing.T) {
			b := newBench(t, kv)
			prefill, decode := b.phase(NewPrefill, ""), b.phase(NewDecode, "")
			r := b.request(wire.Chat, chat)
			plan, _ := prefill.Plan(r)
			if len(plan.Places) != 1 || plan.Places[0] != PoolDecode || plan.Tasks[0].Pool != PoolPrefill {
				t.Errorf("plan %+v", plan)
			}
			if _, _, err := run(r, prefill); err != nil || !r.Prefilled.Ran {
				t.Fatalf("%v %+v", err, r.Prefilled)
			}
			verdict, _, err := run(r, decode)
			if err != nil || !verdict.Done || r.Decoded.Status != 200 {
				t.Fatalf("%v %+v %+v", err, verdict, r.Decoded)
			}
			head, text := drain(r.Out)
			if head == nil || head.Status != 200 || !strings.Contains(text, cluster.Reply("one two")) {
				t.Errorf("%+v %s", head, text)
			}
			if tasks := prefill.(Releaser).Release(r); len(tasks) != 0 {
				t.Errorf("%d releases of a hand-off that was used", len(tasks))
			}
			if st := b.cluster.State(); st.HeldKV != 0 || st.FetchedKV != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestReleaseIsForHandoffsThatNobodyHas.
func TestReleaseIsForHandoffsThatNobodyHas(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	prefill := b.phase(NewPrefill, "")
	r := b.request(wire.Chat, chat)
	if tasks := prefill.(Releaser).Release(r); len(tasks) != 0 {
		t.Errorf("a release without a prefill")
	}
	if _, _, err := run(r, prefill); err != nil {
		t.Fatal(err)
	}
	tasks := prefill.(Releaser).Release(r)
	if len(tasks) != 1 || tasks[0].Pool != PoolRelease || b.cluster.State().HeldKV != 1 {
		t.Fatalf("%+v, %+v", tasks, b.cluster.State())
	}
	if _, err := tasks[0].Run(context.Background()); err != nil {
		t.Error(err)
	}
	if st := b.cluster.State(); st.HeldKV != 0 || st.ViolationCount != 0 {
		t.Errorf("%+v", st)
	}
	shared := newBench(t, cluster.KVSharedStorage)
	other := shared.phase(NewPrefill, "")
	if _, _, err := run(r, other); err != nil {
		t.Fatal(err)
	}
	if tasks := other.(Releaser).Release(r); len(tasks) != 0 {
		t.Errorf("shared storage pins nothing")
	}
}

// TestDecodesPermitIsGivenBack on every way out, or a half-open breaker would
// wait for it for ever.
func TestDecodesPermitIsGivenBack(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	prefill := b.phase(NewPrefill, "")
	r := b.request(wire.Chat, chat)
	if _, _, err := run(r, prefill); err != nil || r.decodePermit == nil {
		t.Fatalf("%v %v", err, r.decodePermit)
	}
	r.Close()
	r.Close()
	if r.decodePermit != nil {
		t.Error("the permit is kept")
	}
}

func TestDoorRefusesWhileABreakerIsOpen(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	ph := b.phase(NewDecode, "")
	r := b.request(wire.Chat, chat)
	if err := ph.(Admitter).Admit(r); err != nil {
		t.Fatal(err)
	}
	b.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Status: 500, Times: 1})
	if _, _, err := run(r, ph); err != nil { // the worker's own answer
		t.Fatal(err)
	}
	drain(r.Out)
	if err := ph.(Admitter).Admit(r); err == nil || wire.FaultOf(err).Kind != wire.Unavailable {
		t.Errorf("%v", err)
	}
}

// TestSlowClientStopsTheReading: the way out holds a bounded number of chunks.
func TestSlowClientStopsTheReading(t *testing.T) {
	o := NewResponse()
	ctx, cancel := context.WithCancelCause(context.Background())
	sent := 0
	go func() { cancel(errors.New("the client left")) }()
	var err error
	for err == nil && sent <= depth {
		if sent < depth { // these must not block
			err = o.Send(context.Background(), Item{Chunk: NewChunk()})
		} else {
			err = o.Send(ctx, Item{Chunk: NewChunk()}) // this does, until the request ends
		}
		sent++
	}
	if err == nil || err.Error() != "the client left" || len(o.Items()) != depth {
		t.Errorf("%v after %d items", err, len(o.Items()))
	}
	drain(o)
	o.Finish(err)
	<-o.Done()
	if o.Err() != err {
		t.Errorf("%v", o.Err())
	}
}
