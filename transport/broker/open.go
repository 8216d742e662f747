package broker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llm-coordinator/coordinator/transport/gateway"
)

// Broker is a Redis that llm-d-async brokers read. It may be used by several
// goroutines. Each method that takes a context returns an *Error within
// Settings.Timeout if Redis is not to be had, or twice that if a connection
// broke under it, and earlier if its context ends.
type Broker struct {
	settings Settings
	client   *redis.Client
	address  string
	log      *slog.Logger
	metrics  *Metrics
	guard    *gateway.Guard
	outages  outages
	owed     owed
	mailboxes
	recheck time.Duration
	// live says that notifications of all subscribed mailboxes arrive.
	live atomic.Bool

	ctx  context.Context // ends with Close, for what runs in the background
	stop context.CancelFunc

	closing sync.RWMutex
	closed  bool
	running sync.WaitGroup // of commands, and of what runs in the background
}

// recheckInterval is how often Redis is asked whether it sends notifications.
const recheckInterval = 30 * time.Second

// breaker leaves Redis alone for a second after five failures in a row. It is
// short because one command tells whether Redis is back, and people wait.
var breaker = gateway.BreakerSettings{
	Enabled: true, ConsecutiveFailures: 5, Interval: 10 * time.Second, OpenTimeout: time.Second, HalfOpenRequests: 1,
}

// calm is how long an outage must have been over to be logged as over.
const calm = 5 * time.Second

// silence has go-redis write nothing to our standard error: what it would say
// is in the errors that it returns.
var silence = sync.OnceFunc(logging.Disable)

// Open connects to a Redis, and fails if it does not answer. The context limits
// the opening alone; a nil log and nil metrics are none. The broker is to be
// closed.
func Open(ctx context.Context, s Settings, log *slog.Logger, m *Metrics) (*Broker, error) {
	return open(ctx, s, log, m, func(*Broker) {})
}

// open opens with something changed before anything runs.
func open(ctx context.Context, s Settings, log *slog.Logger, m *Metrics, edit func(*Broker)) (*Broker, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if m == nil {
		m = NewMetrics(nil, nil)
	}
	silence()
	b := &Broker{settings: s, address: address(o), metrics: m, recheck: recheckInterval,
		guard: gateway.NewGuard(upstream, breaker, m.upstreams)}
	b.log = log.With("redis", b.address)
	b.outages = outages{log: b.log, calm: calm, open: map[command]time.Time{}}
	b.mailboxes.init(o.DB, m.watched)
	b.ctx, b.stop = context.WithCancel(context.Background())
	edit(b)
	b.client = redis.NewClient(o)
	if err := b.start(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("redis at %s: %w", b.address, err)
	}
	return b, nil
}

// start asks Redis whether it is there and what it offers, and starts what runs
// in the background.
func (b *Broker) start(ctx context.Context) error {
	if _, err := ask(ctx, b, cmdPing, b.ping); err != nil {
		return err
	}
	notify := b.settings.Wakeup != Poll
	if notify {
		offers, e := b.offersNotifications(ctx)
		switch {
		case offers || e != nil: // why it may not be asked has been logged
		case b.settings.Wakeup == Notify:
			return fmt.Errorf("it sends no keyspace notifications for lists, and wakeup mode %s insists on them: set notify-keyspace-events Kl", Notify)
		default:
			b.log.Info("redis sends no keyspace notifications for lists: results are polled for")
		}
	}
	b.running.Go(b.look)
	if notify {
		b.running.Go(b.listen)
	}
	return nil
}

func (b *Broker) ping(ctx context.Context) (string, error) { return b.client.Ping(ctx).Result() }

// Close ends what runs in the background, waits for commands that are on their
// way, and closes the connections. Watchers are not woken any more. Later
// commands fail.
func (b *Broker) Close() error {
	b.closing.Lock()
	again := b.closed
	b.closed = true
	b.closing.Unlock()
	b.stop()
	b.running.Wait()
	if again {
		return nil
	}
	b.mailboxes.forget()
	b.guard.Close()
	return b.client.Close()
}

// Status is for operators.
type Status struct {
	Address   string // host:port/database
	Reachable bool   // the latest command was answered
	Wakeup    string // Notify or Poll: what wakes now
	Watched   int    // mailboxes that are waited for
	Breaker   string // closed, half-open or open
}

// Status returns what is so now.
func (b *Broker) Status() Status {
	s := Status{Address: b.address, Reachable: !b.outages.silent(), Wakeup: Poll, Watched: b.mailboxes.count(), Breaker: b.guard.State()}
	if b.live.Load() {
		s.Wakeup = Notify
	}
	return s
}
