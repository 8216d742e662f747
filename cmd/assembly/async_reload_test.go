package assembly_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/broker/redistest"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
	"github.com/llm-coordinator/coordinator/transport/porttest"
)

// following is a coordinator whose redis_url is in a file.
type following struct {
	*asyncRig
	dir   *filestest.Dir
	setup setup
}

// newFollowing has one follow a file, which leads to its Redis over its line.
func newFollowing(t *testing.T) *following {
	t.Helper()
	f := &following{asyncRig: newAsync(t, asyncSetup{real: true}), dir: filestest.NewDir(t)}
	f.says(f.line.URL() + "/0\n")
	f.setup = setup{steps: strings.Replace(asyncStep("", ""), "redis:///0", "file:"+f.dir.Path("url"), 1) + fullSteps}
	f.mustReload(f.setup)
	return f
}

// says has the file say another URL.
func (f *following) says(url string) { f.dir.Write("url", []byte(url)) }

// watches checks which broker requests come to now, and that so many mailboxes are
// waited for there.
func (f *following) watches(at string, n int) {
	f.t.Helper()
	if s, ok := f.Pipeline().BrokerStatus(); !ok || s.Address != at || s.Watched != n {
		f.t.Fatalf("the broker is %+v, want %d waited for at %s", s, n, at)
	}
}

// breakers returns the states of Redis' breaker that are told.
func (f *following) breakers() (states []float64) {
	f.t.Helper()
	for labels, state := range metricstest.Of(f.t, f.Registry, "breaker_state") {
		if labels == `{profile="redis"}` {
			states = append(states, state)
		}
	}
	return states
}

// TestAsyncReload: a broker stays while nothing that concerns it is different; another
// one takes its place when its URL is, also if only the file says so, and it ends when
// nobody waits any more; and it stays if the other one cannot be had.
func TestAsyncReload(t *testing.T) {
	t.Parallel()
	f := newFollowing(t)
	first := f.begins("wait", "r-1")
	f.held(1)
	f.watches(f.line.Addr().String()+"/0", 1)

	// Something else.
	f.setup.pipeline = "request_timeout = \"99s\"\n"
	if done := f.mustReload(f.setup); !slices.Equal(done.Applied, []string{"pipeline.request_timeout"}) {
		t.Errorf("applied: %q", done.Applied)
	}
	f.watches(f.line.Addr().String()+"/0", 1) // it is the same
	f.mail("r-1", answered("r-1", 200, `{"n":1}`))
	(<-first.answer).is(t, 200, `{"n":1}`)

	// Another URL, of the second database, by another way.
	old := f.begins("wait", "r-2")
	f.held(1)
	line, second := redistest.NewLine(t, f.addr), redisDatabase(t, f.addr, 1)
	f.says(line.URL() + "/1\n")
	if done := f.mustReload(f.setup); !slices.Equal(done.Applied, []string{"pipeline.steps[1].redis_url"}) {
		t.Errorf("applied: %q", done.Applied)
	}
	f.watches(line.Addr().String()+"/1", 0)
	f.ask("enqueue", "r-3").is(t, 202, `{"id":"r-3"`)
	if n := second.ZCard(t.Context(), asyncQueue).Val(); n != 1 || f.redis.Exists(t.Context(), activeKey("r-3")).Val() != 0 {
		t.Errorf("%d are queued in the second database", n)
	}
	f.mail("r-2", answered("r-2", 200, `{"n":2}`))
	(<-old.answer).is(t, 200, `{"n":2}`)
	f.eventually("without the old broker", func() bool { return f.line.Conns() == 0 })

	f.staysWithout(line.Addr().String()+"/1", second)
	f.settled()
}

// staysWithout tries to reload to where nobody answers: all stays where it is, at a
// second database.
func (f *following) staysWithout(at string, second *redis.Client) {
	f.t.Helper()
	held := f.begins("wait", "r-4")
	f.held(1)
	f.says("redis://:hunter2@" + porttest.FreeAddr(f.t) + "/0\n")
	done, err := f.reload(f.file(f.setup))
	if err == nil || !strings.Contains(err.Error(), "pipeline.steps[1] (async-broker): redis_url: ") || strings.Contains(err.Error(), "hunter2") {
		f.t.Errorf("%+v, %v", done, err)
	}
	if states := f.breakers(); !slices.Equal(states, []float64{0}) {
		f.t.Errorf("told of breakers: %v", states)
	}
	f.watches(at, 1)
	f.call(http.MethodGet, "r-3").is(f.t, 202, `{"id":"r-3"`)
	if err := second.LPush(f.t.Context(), mailbox("r-4"), answered("r-4", 200, `{"n":4}`)).Err(); err != nil {
		f.t.Fatal(err)
	}
	(<-held.answer).is(f.t, 200, `{"n":4}`)
}

// TestAsyncURLIsFollowed: the broker is given what the file says at any time.
func TestAsyncURLIsFollowed(t *testing.T) {
	t.Parallel()
	d := filestest.NewDir(t)
	path := d.Write("url", []byte("redis://:old@127.0.0.1:1/0\n"))
	cfg, err := conf.Parse("rig.toml", []byte("[gateway]\naddress = \"http://127.0.0.1:1\"\n[pipeline]\n"+
		strings.Replace(asyncStep("", ""), "redis:///0", "file:"+path, 1)+decodeStep), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got broker.Settings
	c, err := assembly.New(cfg, assembly.Options{FilesEvery: -1, OpenBroker: func(ctx context.Context, s broker.Settings, log *slog.Logger, m *broker.Metrics) (assembly.OpenedBroker, error) {
		got = s
		return assembly.Unopened(ctx, s, log, m)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d.Write("url", []byte("redis://:new@127.0.0.1:1/0\n"))
	if now := got.Renewed(); got.URL != "redis://:old@127.0.0.1:1/0" || now != "redis://:new@127.0.0.1:1/0" {
		t.Errorf("it was opened with %s, and is told %s", got.URL, now)
	}
}

// TestAsyncReloadOfWhatIsTheSame does nothing, and what is told of Redis stays.
func TestAsyncReloadOfWhatIsTheSame(t *testing.T) {
	t.Parallel()
	f := newFollowing(t)
	for range 2 {
		f.says(f.line.URL() + "/0") // written again, without a line break
		if done := f.mustReload(f.setup); !done.Unchanged() {
			t.Errorf("%+v", done)
		}
		if states := f.breakers(); !slices.Equal(states, []float64{0}) {
			t.Errorf("told of breakers: %v", states)
		}
	}
	f.ask("enqueue", "s-1").is(t, 202, "{")
	f.settled()
}
