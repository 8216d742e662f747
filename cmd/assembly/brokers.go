package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/files"
)

// stepAsync is the step that has a broker.
const stepAsync = "async-broker"

// OpenedBroker is a broker that is open.
type OpenedBroker interface {
	phases.Broker
	Close() error
}

// brokers are those that are in use. Generations share one if its settings are the
// same: a reload costs no connections, and nobody who waits is forgotten. It may be
// used by many goroutines.
type brokers struct {
	mu  sync.Mutex
	all []*sharedBroker
}

// sharedBroker is a broker, and how many generations use it.
type sharedBroker struct {
	OpenedBroker
	settings broker.Settings
	users    int
}

// take returns the broker that there is with these settings, or opens it. It is
// closed when all who took it have called giveBack, which each may do once.
func (bs *brokers) take(s broker.Settings, open func() (OpenedBroker, error)) (b OpenedBroker, giveBack func(), err error) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for _, there := range bs.all {
		if reflect.DeepEqual(there.settings, s) {
			there.users++
			return there.OpenedBroker, func() { bs.giveBack(there) }, nil
		}
	}
	opened, err := open()
	if err != nil {
		return nil, nil, err
	}
	shared := &sharedBroker{OpenedBroker: opened, settings: s, users: 1}
	bs.all = append(bs.all, shared)
	return opened, func() { bs.giveBack(shared) }, nil
}

func (bs *brokers) giveBack(b *sharedBroker) {
	bs.mu.Lock()
	b.users--
	last := b.users == 0
	if last {
		bs.all = slices.DeleteFunc(bs.all, func(other *sharedBroker) bool { return other == b })
	}
	bs.mu.Unlock()
	if last {
		_ = b.Close() // it waits for its goroutines; there is nobody left to care for more
	}
}

// opening is how long Redis may take to answer at the start.
const opening = 5 * time.Second

// broker opens a broker for the generation, or takes the one that there is.
func (b *builder) broker(s broker.Settings) (phases.Broker, error) {
	url, err := files.Secret(s.URL, b.c.options.LookupEnv, b.c.options.files(), checkedURL)
	if err != nil {
		return nil, err
	}
	s.URL = url()
	b.g.redisURL = s.URL
	open := b.c.options.OpenBroker
	if open == nil {
		open = func(ctx context.Context, s broker.Settings, log *slog.Logger, m *broker.Metrics) (OpenedBroker, error) {
			return broker.Open(ctx, s, log, m)
		}
	}
	opened, giveBack, err := b.c.brokers.take(s, func() (OpenedBroker, error) {
		ctx, cancel := context.WithTimeout(context.Background(), opening)
		defer cancel()
		following := s // what it is known by has no functions, for those are never the same
		following.Renewed = url
		return open(ctx, following, b.c.log, b.c.brokerMetrics)
	})
	if err != nil {
		return nil, err
	}
	b.g.closers = append(b.g.closers, giveBack)
	return opened, nil
}

// renewedURL returns the key of the broker's URL if it is another one than that of
// the generation before, though the configuration may say the same: in its file
// there is another. It returns "" if not, or if either has no broker.
func (g *generation) renewedURL(before *generation) string {
	if g.redisURL == "" || before.redisURL == "" || g.redisURL == before.redisURL {
		return ""
	}
	for i, s := range g.config.Pipeline.Steps {
		if s.Type == stepAsync {
			return fmt.Sprintf("pipeline.steps[%d].redis_url", i+1)
		}
	}
	return ""
}

func checkedURL(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return "", errors.New("the URL is empty")
	}
	return text, nil
}

// Unopened is for those who only look at what a configuration amounts to: it opens
// no broker, but for its settings being checked, and whatever is asked of it fails.
func Unopened(_ context.Context, s broker.Settings, _ *slog.Logger, _ *broker.Metrics) (OpenedBroker, error) {
	at, err := broker.Check(s)
	if err != nil {
		return nil, err
	}
	return unopened{at}, nil
}

// unopened is a broker of which only the address is known.
type unopened struct{ at string }

var errUnopened = errors.New("the broker was not opened")

func (u unopened) Lookup(context.Context, broker.Key) (broker.State, *broker.Result, error) {
	return broker.Unknown, nil, errUnopened
}
func (u unopened) Submit(context.Context, broker.Submission) error      { return errUnopened }
func (u unopened) Cancel(context.Context, broker.Key) (bool, error)     { return false, errUnopened }
func (u unopened) Revive(context.Context, broker.Key) error             { return errUnopened }
func (u unopened) Delete(context.Context, broker.Key) error             { return errUnopened }
func (u unopened) Fetched(context.Context, broker.Key) error            { return errUnopened }
func (u unopened) ReleaseQuota(context.Context, *broker.Slot) error     { return errUnopened }
func (u unopened) Owe(*broker.Slot)                                     {}
func (u unopened) Watched(broker.Key) bool                              { return false }
func (u unopened) Watch(broker.Key, func(*broker.Result)) (stop func()) { return func() {} }
func (u unopened) Status() broker.Status                                { return broker.Status{Address: u.at, Wakeup: "not opened"} }
func (u unopened) Close() error                                         { return nil }
func (u unopened) TakeQuota(context.Context, string) (bool, *broker.Slot, error) {
	return false, nil, errUnopened
}
