package phases

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

var errRedis = errors.New("redis is away")

// memoryBroker is a Broker without Redis. It fails the commands that it is told to.
type memoryBroker struct {
	mu       sync.Mutex
	said     []string // each command, and its key
	known    map[broker.Key]*broker.Result
	failing  map[string]bool
	last     broker.Submission
	taken    int
	lost     bool // a take that fails may have been done
	limit    int
	watchers map[broker.Key]func(*broker.Result)
	// onLookup, if set, is called before each lookup.
	onLookup func(n int)
	// onSubmit likewise.
	onSubmit func()
	lookups  int
}

func newMemoryBroker() *memoryBroker {
	return &memoryBroker{known: map[broker.Key]*broker.Result{}, failing: map[string]bool{}, watchers: map[broker.Key]func(*broker.Result){}}
}

func (b *memoryBroker) did(command string) error {
	b.said = append(b.said, command)
	if b.failing[command] {
		return errRedis
	}
	return nil
}

func (b *memoryBroker) commands() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.said, " ")
}

func (b *memoryBroker) watched() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.watchers)
}

// finish puts a result into a mailbox.
func (b *memoryBroker) finish(k broker.Key, r *broker.Result) {
	b.mu.Lock()
	b.known[k] = r
	wake := b.watchers[k]
	b.mu.Unlock()
	if wake != nil {
		wake(r)
	}
}

func (b *memoryBroker) Lookup(_ context.Context, k broker.Key) (broker.State, *broker.Result, error) {
	b.mu.Lock()
	b.lookups++
	n, on := b.lookups, b.onLookup
	b.mu.Unlock()
	if on != nil {
		on(n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.did("lookup"); err != nil {
		return 0, nil, err
	}
	switch r, there := b.known[k]; {
	case !there:
		return broker.Unknown, nil, nil
	case r == nil:
		return broker.Pending, nil, nil
	default:
		return broker.Ready, r, nil
	}
}

func (b *memoryBroker) Submit(_ context.Context, s broker.Submission) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = s
	if b.onSubmit != nil {
		b.onSubmit()
	}
	if err := b.did("submit"); err != nil {
		return err
	}
	b.known[s.Key] = nil
	return nil
}

func (b *memoryBroker) simply(command string, f func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.did(command); err != nil {
		return err
	}
	if f != nil {
		f()
	}
	return nil
}

func (b *memoryBroker) Cancel(context.Context, broker.Key) (bool, error) {
	return true, b.simply("cancel", nil)
}
func (b *memoryBroker) Revive(context.Context, broker.Key) error { return b.simply("revive", nil) }
func (b *memoryBroker) Delete(_ context.Context, k broker.Key) error {
	return b.simply("delete", func() { delete(b.known, k) })
}
func (b *memoryBroker) Fetched(context.Context, broker.Key) error { return b.simply("fetched", nil) }

func (b *memoryBroker) TakeQuota(_ context.Context, tenant string) (reserved bool, slot *broker.Slot, err error) {
	err = b.simply("take", func() {
		if reserved = b.taken < b.limit; reserved {
			b.taken++
			slot = &broker.Slot{Tenant: tenant}
		}
	})
	if err != nil && b.lost {
		slot = &broker.Slot{Tenant: tenant, Unsure: true}
	}
	return reserved || err != nil, slot, err
}

func (b *memoryBroker) ReleaseQuota(_ context.Context, slot *broker.Slot) error {
	return b.simply("release", func() {
		if !slot.Unsure {
			b.taken--
		}
	})
}

func (b *memoryBroker) Owe(*broker.Slot) { _ = b.simply("owe", nil) }

func (b *memoryBroker) Watch(k broker.Key, wake func(*broker.Result)) (stop func()) {
	_ = b.simply("watch", func() { b.watchers[k] = wake })
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, k)
	}
}

func (b *memoryBroker) Watched(k broker.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watchers[k] != nil
}

func (b *memoryBroker) Status() broker.Status {
	return broker.Status{Address: "redis.test:6379/0", Wakeup: "poll"}
}

// asyncRig is the phase on a broker in memory.
type asyncRig struct {
	t     *testing.T
	b     *memoryBroker
	phase *asyncBroker
}

func newAsyncRig(t *testing.T, text params) *asyncRig {
	t.Helper()
	a := &asyncRig{t: t, b: newMemoryBroker()}
	ph, err := NewAsyncBroker(Deps{Metrics: NewMetrics(nil), NewBroker: func(broker.Settings) (Broker, error) { return a.b, nil }}, text)
	if err != nil {
		t.Fatal(err)
	}
	a.phase = ph.(*asyncBroker)
	return a
}

const asyncBody = `{ "model":"m","n":12345678901234567890, "messages":[{"role":"user","content":"<&>"}]}`

// request makes one with headers; named has it be known by its client's id.
func (a *asyncRig) request(text string, named bool, headers ...string) *Request {
	a.t.Helper()
	body, err := wire.ParseBody([]byte(text))
	if err != nil {
		a.t.Fatal(err)
	}
	model, _ := wire.Unquote(body.Get("model"))
	r := &Request{ID: "id-1", NamedByClient: named, Protocol: wire.Chat, Body: body, Model: model, Header: http.Header{},
		Stream: string(body.Get("stream")) == "true", Out: NewResponse()}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

var defaultKey = broker.Key{Tenant: "default", ID: "id-1"}

// ending is how a request ended.
type ending struct {
	status int
	body   string
	fault  *wire.Fault
	err    error
	passed bool // the other phases are run
}

func (e ending) String() string {
	switch {
	case e.err != nil:
		return "fails: " + wire.FaultOf(e.err).ErrorCode()
	case e.fault != nil:
		return "error " + e.fault.ErrorCode()
	case e.passed:
		return "passed"
	}
	return fmt.Sprint(e.status, " ", e.body)
}

// drive does what an engine and a server do: it runs the phase until it is done,
// writes what it sends if the client takes it, and does what it leaves behind.
func drive(ctx context.Context, r *Request, ph Phase, takes bool) (e ending) {
	if e.err = ph.(Admitter).Admit(r); e.err != nil {
		return e
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(e.err)
		for _, task := range ph.(Releaser).Release(r) {
			_, _ = task.Run(context.Background())
			if task.Over != nil {
				task.Over()
			}
		}
		r.Close()
	}()
	for range 8 {
		plan, err := ph.Plan(r)
		if err != nil {
			return ending{err: err}
		}
		if len(plan.Tasks) == 0 {
			return ending{passed: true}
		}
		result, err := runOne(ctx, cancel, r, plan.Tasks[0], takes, &e)
		var verdict Verdict
		if err == nil {
			verdict, err = ph.Join(r, []Result{result})
		} else if ctx.Err() == nil {
			verdict, err = ph.(Recoverer).Recover(r, err)
		}
		if err != nil {
			e.err = err
			return e
		}
		e.write(r, nil)
		if verdict == Next {
			e.passed = true
			return e
		}
		if verdict == Done {
			return e
		}
	}
	panic("it goes on for ever")
}

// runOne runs the one task of a plan, and writes meanwhile.
func runOne(ctx context.Context, leave context.CancelCauseFunc, r *Request, task Task, takes bool, e *ending) (Result, error) {
	if task.Run != nil {
		return task.Run(ctx)
	}
	type woken struct {
		result Result
		err    error
	}
	wakes := make(chan woken, 8)
	task.Await(ctx, func(result Result, err error) { wakes <- woken{result, err} })
	if len(r.Out.items) > 0 && !takes {
		leave(wire.Faultf(wire.Canceled, "the client takes nothing any more"))
	} else {
		e.write(r, nil)
	}
	select {
	case w := <-wakes:
		return w.result, w.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// write takes what has been sent.
func (e *ending) write(r *Request, _ error) {
	for len(r.Out.items) > 0 {
		it := <-r.Out.items
		if e.fault = it.Fault; it.Head != nil {
			e.status = it.Head.Status
		}
		if it.Chunk != nil {
			e.body += string(it.Chunk.Bytes())
		}
		it.Free()
		if it.Wrote != nil {
			it.Wrote()
		}
	}
}
