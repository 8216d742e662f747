// Package actors runs requests through a pipeline of phases: a supervisor actor
// for each request, and for each kind of work a bounded pool of worker actors.
//
// It gives what an operator counts on: work is bounded at submission and
// refused at once beyond that; what there is room for is shared fairly among
// tenants; one request's failure, panic or slow client touches no other; a
// client that leaves takes everything of its request with it; and when the
// engine is closed nothing is left.
//
// It runs any phase and knows none by name. Of protoactor-go it uses spawning,
// sending, stopping and supervision, and nothing else; no actor appears in its
// interface.
package actors

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Settings are the bounds of an engine.
type Settings struct {
	// QueueTimeout is how long a task or a request may wait for a place; it must
	// be more than 0.
	QueueTimeout time.Duration
	// MaxInflight is how many requests may be in flight; 0 is no limit. Beyond it
	// one is refused, unless its tenant has less than its share: then it displaces
	// one that waits and for which nothing is begun.
	MaxInflight int
	// MaxAside is how many requests that stand aside may be there; 0 is no limit.
	// They are not among those in flight: see phases.Request.Aside.
	MaxAside int
	// Watchdog is for how long nothing may happen in a request (no task of it
	// comes home, no ticket is granted or refused, nothing of its answer is sent)
	// before it is taken for stuck, and cancelled; 0 is for ever. It must be longer
	// than QueueTimeout, than any task may take without sending something, and
	// than a client may take to read what was sent.
	Watchdog time.Duration
	// Pools are the pools by name. Tasks name the pool that they run in.
	Pools map[string]PoolSettings
}

// Engine drives requests. All its methods may be called by any goroutine.
type Engine struct {
	system  *actor.ActorSystem
	root    *actor.RootContext
	pools   *pools
	metrics *Metrics
	log     *slog.Logger
	main    *Line

	maxInflight atomic.Int64
	maxAside    atomic.Int64

	mu       sync.Mutex // taken before the pools' lock where both are
	closing  bool
	live     map[*supervisor]struct{}
	counted  int            // requests that MaxInflight is for
	tenants  map[string]int // those by tenant
	aside    int            // requests that MaxAside is for
	batches  int            // requests of several prompts; their parts are among the live
	drain    drain          // of those, while there are as many as may be
	detached int
	changed  chan struct{} // closed and replaced whenever a request or detached task ends

	// detachedCtx is the context of tasks that outlive their request.
	detachedCtx    context.Context
	cancelDetached context.CancelFunc

	// sizing is held while settings are changed or pools are stopped: one that is
	// stopped starts no workers for whom a resize waits.
	sizing  sync.Mutex
	stopped bool

	watchdog *watchdog     // nil if there is none; guarded by sizing
	patience time.Duration // of the watchdog; written with mu and sizing held
}

// NewEngine starts the pools. A nil logger logs nothing, nil metrics go
// nowhere. The engine must be closed.
func NewEngine(s Settings, p *phases.Pipeline, log *slog.Logger, m *Metrics) *Engine {
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	system := newSystem(log)
	e := &Engine{system: system, root: system.Root, metrics: m, log: log,
		live: make(map[*supervisor]struct{}), tenants: make(map[string]int), changed: make(chan struct{})}
	e.maxInflight.Store(int64(s.MaxInflight))
	e.maxAside.Store(int64(s.MaxAside))
	e.detachedCtx, e.cancelDetached = context.WithCancel(context.Background())
	e.main = &Line{engine: e, counted: true}
	e.main.pipeline.Store(m.pipeline(p))
	e.pools = &pools{root: system.Root, timeout: s.QueueTimeout, metrics: m, all: make(map[string]*pool, len(s.Pools))}
	for name := range s.Pools {
		e.pools.all[name] = e.newPool(name)
	}
	for name, bounds := range s.Pools {
		if started, err := e.pools.resize(name, bounds); err == nil {
			<-started
		}
	}
	m.watch(e.pools)
	e.watch(s.Watchdog)
	return e
}

// newSystem makes the actor system. Its logger gets no message contents: dead
// letters are counted, and our messages do not even take part in that.
func newSystem(log *slog.Logger) *actor.ActorSystem {
	quiet := slog.New(minLevel{log.Handler()}).With("component", "actors")
	return actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet }),
		actor.WithDeadLetterThrottleCount(1),
		actor.WithDeadLetterThrottleInterval(10*time.Millisecond),
	)
}

// minLevel keeps the library's chatter below warnings out of the log.
type minLevel struct{ slog.Handler }

func (h minLevel) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

func (h minLevel) WithAttrs(attrs []slog.Attr) slog.Handler {
	return minLevel{h.Handler.WithAttrs(attrs)}
}

func (h minLevel) WithGroup(name string) slog.Handler { return minLevel{h.Handler.WithGroup(name)} }

func (e *Engine) newPool(name string) *pool {
	p := &pool{name: name, wait: e.metrics.poolWait.WithLabelValues(name)}
	p.parent = e.root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return &crew{pool: p, pools: e.pools, log: e.log, metrics: e.metrics}
	}, actor.WithSupervisor(alwaysRestart)))
	return p
}

// Line is a pipeline that an engine runs requests through. An engine has its
// main one, and may have others beside it, in the same pools.
type Line struct {
	engine   *Engine
	pipeline atomic.Pointer[pipeline]
	counted  bool // MaxInflight is for its requests
}

// Line returns another line of the engine, whose requests do not count among
// those that MaxInflight bounds.
func (e *Engine) Line(p *phases.Pipeline) *Line {
	l := &Line{engine: e}
	l.pipeline.Store(e.metrics.pipeline(p))
	return l
}

// stopOnFailure is the guardian of supervisors: one that crashes is not run
// again, for that would send its request's legs again.
var stopOnFailure = actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })

// supervised is how a supervisor's actor is spawned. All share it, for one of its
// own would be a good part of what a request that waits keeps.
var supervised = actor.PropsFromProducer(func() actor.Actor { return &shell{} }, actor.WithGuardian(stopOnFailure), actor.WithDispatcher(inline))

// supervisedAside is that of a request that stands aside, with a mailbox that takes
// less memory than the default one while it is empty, and more for each message.
var supervisedAside = supervised.Clone(actor.WithMailbox(actor.UnboundedLockfree()))

// Start begins to drive a request, whose answer and outcome come by its Out. It
// does not wait. The request is cancelled when ctx ends. An error refuses it:
// nothing was begun then, and Out stays silent. A request with a deadline ends
// with [phases.ErrExpired] if its answer has not begun by then.
func (e *Engine) Start(ctx context.Context, r *phases.Request) error { return e.main.Start(ctx, r) }

// Start is [Engine.Start] for this line.
func (l *Line) Start(ctx context.Context, r *phases.Request) error {
	for {
		if err := l.start(ctx, r); err != errSwapped {
			return err
		}
	}
}

// start starts a request, unless the pipeline is swapped at that moment.
func (l *Line) start(ctx context.Context, r *phases.Request) error {
	e, line := l.engine, l.pipeline.Load()
	if !r.Deadline.IsZero() && !time.Now().Before(r.Deadline) {
		e.countOutcome(phases.ErrExpired, admission)
		return phases.ErrExpired
	}
	if err := e.ask(line, r); err != nil {
		return err
	}
	if r.Batch != nil && !r.Aside {
		return l.startBatch(ctx, line, r)
	}
	s := &supervisor{engine: e, req: r, line: line, counted: l.counted && !r.Aside, aside: l.counted && r.Aside, unhook: func() bool { return true }, outcome: errCrashed}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	r.Out.StopBy(s.cancel)
	if err := e.admit(s); err != nil {
		s.cancel(err)
		return err
	}
	props := supervised
	if s.aside { // there may be many of them, and each gets few messages
		props = supervisedAside
	}
	e.root.Send(e.root.Spawn(props), &begin{s})
	return nil
}

// ask has the phases refuse a request that will surely fail, up to one that will
// answer it by itself. One that panics refuses it, too: this is the goroutine of a
// caller.
func (e *Engine) ask(line *pipeline, r *phases.Request) (err error) {
	phase := ""
	r.Aside = false
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(e.log, "a phase panicked at the door", r.ID, phase, cause)
			err = panicked(phase)
		}
	}()
	for _, p := range line.phases {
		a, ok := p.(phases.Admitter)
		if !ok {
			continue
		}
		phase = p.Name()
		if err := a.Admit(r); err != nil {
			if wire.FaultOf(err).Kind == wire.Unavailable {
				e.metrics.shed.WithLabelValues("breaker_open").Inc()
			}
			return err
		}
		if r.Aside {
			break
		}
	}
	return nil
}

// Status is the state of an engine at one moment.
type Status struct {
	Inflight int `json:"inflight"`
	// Aside are those of them that only wait, of MaxAside at most.
	Aside    int          `json:"aside"`
	MaxAside int          `json:"max_aside"`
	Detached int          `json:"detached"`
	Pools    []PoolStatus `json:"pools"`
}

// Status returns the state of the engine.
func (e *Engine) Status() Status {
	e.mu.Lock()
	s := Status{Inflight: len(e.live), Aside: e.aside, MaxAside: int(e.maxAside.Load()), Detached: e.detached}
	e.mu.Unlock()
	s.Pools = e.pools.status()
	return s
}
