package broker

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/transport/broker/redistest"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startRedis starts a redis-server that sends notifications, with these
// arguments besides.
func startRedis(t testing.TB, args ...string) *redistest.Server {
	t.Helper()
	s := redistest.Start(t, args...)
	if s == nil {
		t.Skip("!!! LEFT OUT: redis-server is not installed")
	}
	return s
}

// rig is a broker, and a way past it.
type rig struct {
	*Broker
	raw *redis.Client // of the same database
	t   *testing.T
	reg *prometheus.Registry
	log *lines
}

// connect opens a broker with short intervals.
func connect(t *testing.T, url string, edit ...func(*Settings)) *rig {
	t.Helper()
	s := Settings{URL: url, FetchGrace: time.Minute, QuotaPrefix: "quota:", QuotaAttribute: "userid", QuotaWindow: time.Minute,
		PollInterval: 5 * time.Millisecond, BackupInterval: 50 * time.Millisecond}
	for _, f := range edit {
		f(&s)
	}
	r := &rig{t: t, reg: prometheus.NewRegistry(), log: &lines{}}
	var err error
	r.Broker, err = open(t.Context(), s, slog.New(slog.NewTextHandler(r.log, nil)), NewMetrics(r.reg, gateway.NewMetrics(r.reg)),
		func(b *Broker) { b.recheck, b.outages.calm = 100*time.Millisecond, 0 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Broker.Close(); err != nil {
			t.Error(err)
		}
	})
	r.raw = client(t, url)
	return r
}

func client(t *testing.T, url string) *redis.Client {
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.Dialer = dialer(o.TLSConfig, time.Second)
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// each runs a test with a real Redis and with one in memory.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("redis-server", func(t *testing.T) { test(t, startRedis(t).URL()) })
	t.Run("miniredis", func(t *testing.T) { test(t, "redis://"+miniredis.RunT(t).Addr()) })
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	said []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, string(b))
	return len(b), nil
}

// count returns how many lines have this in them.
func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.said {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// metric returns the value of a series, named as name or name{a="b",c="d"}.
func (r *rig) metric(series string) float64 {
	r.t.Helper()
	return metricstest.All(r.t, r.reg)[series]
}

// until waits for a state of another process, which tells nobody of it.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !so() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// woken waits for a watcher's result.
func woken(t *testing.T, c <-chan *Result) *Result {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("a watcher was not woken")
		return nil
	}
}

// watch watches and returns where the result will be.
func (r *rig) watch(k Key) (<-chan *Result, func()) {
	c := make(chan *Result, 2)
	return c, r.Watch(k, func(found *Result) { c <- found })
}

// push leaves a result, as a broker does.
func (r *rig) push(k Key, element string) {
	r.t.Helper()
	if err := r.raw.LPush(context.Background(), k.mailbox(), element).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// submission is a request with this body and a deadline in a minute.
func submission(k Key, body string) Submission {
	now := time.Now()
	return Submission{Key: k, Queue: "request-sortedset", Endpoint: "/v1/chat/completions", Payload: wire.NewPayload([]byte(body)),
		Metadata: map[string]string{"userid": k.Tenant}, Created: now, Deadline: now.Add(time.Minute)}
}

// socket is a path short enough for a socket.
func socket(t *testing.T) string { return filepath.Join(t.TempDir(), "redis.sock") }

var abc = Key{Tenant: "acme", ID: "abc-1"}
