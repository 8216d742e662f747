// Package broker is a small broker of the llm-d-async protocol: it takes requests
// out of a sorted set in Redis, earliest deadline first, sends them over HTTP, and
// puts the results into the mailboxes that the requests name. It cancels, retries,
// minds deadlines, and shares the quota's counters with who else counts there.
//
// It is for demos and tests. Requests that it took are in memory only: they are put
// back when it is closed, and lost if it dies. It looks into what it is sent closely,
// and notes what a real broker might stumble over (see [State]).
//
// The package shares no code with the rest of the module on purpose: the coordinator
// and its counterpart must not be able to share one misreading of the protocol. For
// the same reason it reads JSON with encoding/json only.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// DefaultQueue is the sorted set that requests are taken out of unless
// [Options.Queue] says another.
const DefaultQueue = "request-sortedset"

// ErrClosed is what Wait returns once the broker was closed.
var ErrClosed = errors.New("broker: closed")

// errURL says nothing of the URL: what a parser complains about could be a part of
// the password.
var errURL = errors.New("broker: the URL of Redis cannot be read: it is redis://[user:password@]host[:port][/database], or rediss:// or unix://")

// Options configure a [Broker]. Redis and Gateway have to be given.
type Options struct {
	// Redis is the URL of the Redis that the requests wait in.
	Redis string
	// Gateway is where requests are sent to: a URL, to which the path of a request
	// is added.
	Gateway string
	// Queue is the sorted set of the requests. Default DefaultQueue.
	Queue string
	// RetryQueue is the sorted set of those that are to be sent again. Default
	// "retry-sortedset".
	RetryQueue string
	// Workers is how many requests are sent at a time. Default 8.
	Workers int
	// PollInterval is how often both are looked at. Default 1s.
	PollInterval time.Duration
	// RequestTimeout is how long one attempt may take. Default 5m.
	RequestTimeout time.Duration
	// Backoff is the longest pause before the second attempt; it doubles with each
	// further one, up to a minute. Default 2s.
	Backoff time.Duration
	// ResultTTL is how long a result is kept for who does not fetch it. 0 is
	// without end.
	ResultTTL time.Duration
	// Quota counts the requests that are being sent, by tenant.
	Quota Quota
	// FairnessAttribute names the metadata that is sent along as the header
	// FairnessHeader. Defaults "userid" and "x-llm-d-inference-fairness-id".
	FairnessAttribute, FairnessHeader string
}

func (o Options) withDefaults() Options {
	o.Queue = cmp.Or(o.Queue, DefaultQueue)
	o.RetryQueue = cmp.Or(o.RetryQueue, "retry-sortedset")
	o.Workers = cmp.Or(o.Workers, 8)
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 5*time.Minute)
	o.Backoff = cmp.Or(o.Backoff, 2*time.Second)
	o.FairnessAttribute = cmp.Or(o.FairnessAttribute, "userid")
	o.FairnessHeader = cmp.Or(o.FairnessHeader, "x-llm-d-inference-fairness-id")
	o.Quota = o.Quota.withDefaults()
	return o
}

// State is what a broker has done. Each request that was taken ends as one of
// Answered, Failed, Expired, Cancelled and Dropped, or was put back.
type State struct {
	Taken   int // out of the queue, each time anew
	Running int // are at a worker now
	Retried int // put aside, to be sent again
	Back    int // put back, because the broker was closed or Redis could not be asked

	Answered  int // an answer of the gateway's was delivered
	Failed    int // there was no answer: INFERENCE_ERROR
	Expired   int // DEADLINE_EXCEEDED
	Cancelled int // CANCELLED
	Dropped   int // could not be read: there is no result
	Lost      int // Redis did not take the result before the broker was closed

	// Violations name what requests have that they may not have, the first hundred.
	Violations []string
}

// Broker is a broker that runs. All its methods may be called at any time from any
// goroutine.
type Broker struct {
	options Options
	redis   *redis.Client
	http    *http.Client
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	free    chan struct{} // has an element for each worker that is at work
	running sync.WaitGroup

	mu      sync.Mutex
	state   State
	changed chan struct{} // nil unless somebody waits; closed at the next change
}

// Start begins to serve what waits, or will wait, in Redis. Close the broker after
// use.
func Start(o Options) (*Broker, error) {
	o = o.withDefaults()
	if o.Gateway == "" {
		return nil, errors.New("broker: there is no gateway")
	}
	settings, err := redis.ParseURL(o.Redis)
	if err != nil {
		return nil, errURL
	}
	settings.DisableIdentity = true
	settings.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	b := &Broker{options: o, redis: redis.NewClient(settings), free: make(chan struct{}, o.Workers),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Workers}}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	if err := b.redis.Ping(b.ctx).Err(); err != nil {
		b.Close()
		return nil, fmt.Errorf("broker: %w", err)
	}
	b.running.Go(b.dispatch)
	return b, nil
}

// Close breaks off what is being sent, puts it back into the queue, and returns when
// no goroutine of the broker is left. It may be called more than once.
func (b *Broker) Close() {
	b.stop()
	b.running.Wait()
	b.http.CloseIdleConnections()
	_ = b.redis.Close() // its only error is that of a second time
	b.count(func(*State) {})
}

// State returns what has been done so far.
func (b *Broker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.copy()
}

func (s State) copy() State {
	s.Violations = append([]string(nil), s.Violations...)
	return s
}

// Wait returns nil as soon as the state is as cond wants it, ctx's error, or
// ErrClosed.
func (b *Broker) Wait(ctx context.Context, cond func(State) bool) error {
	for {
		b.mu.Lock()
		if cond(b.state.copy()) {
			b.mu.Unlock()
			return nil
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ctx.Done():
			return ErrClosed
		}
	}
}

// count changes the state.
func (b *Broker) count(change func(*State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}
