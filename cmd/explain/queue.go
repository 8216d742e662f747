package explain

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/transport/broker"
)

// redisHost is Redis' name here. It is reserved: it exists nowhere.
const redisHost = "redis.invalid"

// queue stands in for the broker of an async-broker step. It knows no request,
// takes each, has its result at once, and remembers what it was given.
type queue struct {
	assembly.OpenedBroker // whose commands fail: what is not asked for here is none of explain's

	mu        sync.Mutex
	submitted []broker.Submission
}

// open is how a coordinator gets it.
func (q *queue) open(ctx context.Context, s broker.Settings, log *slog.Logger, m *broker.Metrics) (assembly.OpenedBroker, error) {
	unopened, err := assembly.Unopened(ctx, s, log, m)
	q.OpenedBroker = unopened
	return q, err
}

func (q *queue) Lookup(context.Context, broker.Key) (broker.State, *broker.Result, error) {
	return broker.Unknown, nil, nil
}

func (q *queue) Submit(_ context.Context, s broker.Submission) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.submitted = append(q.submitted, s)
	return nil
}

func (q *queue) TakeQuota(context.Context, string) (reserved bool, slot *broker.Slot, err error) {
	return true, nil, nil
}

func (q *queue) Delete(context.Context, broker.Key) error { return nil }

func (q *queue) Watch(_ broker.Key, wake func(*broker.Result)) (stop func()) {
	wake(&broker.Result{Status: 200, Payload: []byte("{}")})
	return func() {}
}

// why says what the step does with the request.
func (q *queue) why(header string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.submitted) == 0 {
		return "it may not wait: its headers name its tenant and what it may ask for (assumed: its tenant is within its quota)"
	}
	s := q.submitted[0]
	return fmt.Sprintf("it may wait (it has %s): it is put into the queue %q as %q, for %s and at most %v; no other step is run for it now",
		strings.ToLower(header), s.Queue, s.Key.String(), s.Endpoint, s.Deadline.Sub(s.Created))
}
