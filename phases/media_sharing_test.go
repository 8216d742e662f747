package phases

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// sharing is a media phase whose requests the test drives.
type sharing struct {
	*bench
	Phase
}

func newSharing(t *testing.T, p string) *sharing {
	s := &sharing{bench: newBench(t, cluster.KVNixl)}
	var closers []func()
	s.deps.OnClose = func(f func()) { closers = append(closers, f) }
	s.Phase = s.phase(NewMedia, params(`{"AllowedNetworks":["127.0.0.0/8"]`+p+`}`))
	t.Cleanup(func() {
		for _, f := range closers {
			f()
		}
	})
	return s
}

// naming is a request for images at the cluster's origin.
func (s *sharing) naming(names ...string) *Request {
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, s.cluster.ImageURL(name, cluster.ImageOptions{})))
	}
	return s.request(wire.Chat, `{"messages":[{"role":"user","content":[`+strings.Join(parts, ",")+`]}]}`)
}

// kinds tells a plan's tasks: R takes a worker, A awaits.
func kinds(p Plan) (text string) {
	for _, task := range p.Tasks {
		if task.Await != nil {
			text += "A"
		} else {
			text += "R"
		}
	}
	return text
}

func (s *sharing) plan(r *Request, want string) Plan {
	s.t.Helper()
	p, err := s.Plan(r)
	if err != nil || kinds(p) != want {
		s.t.Fatalf("%v: tasks are %s, want %s", err, kinds(p), want)
	}
	return p
}

type came struct {
	result Result
	err    error
}

// await awaits a task.
func await(ctx context.Context, task Task) <-chan came {
	woken := make(chan came, 1)
	task.Await(ctx, func(result Result, err error) { woken <- came{result, err} })
	return woken
}

// wantImages fails the test unless a request has these images.
func (s *sharing) wantImages(r *Request, names ...string) {
	s.t.Helper()
	leg := string(r.Protocol.RenderLeg(r.source()).Append(nil))
	for _, name := range names {
		if uri := cluster.DataURI(name, 0); !strings.Contains(leg, uri) {
			s.t.Errorf("%s is not in %.200s", name, leg)
		}
	}
	if strings.Contains(leg, "http://") {
		s.t.Errorf("a URL is left in %.200s", leg)
	}
}

func (s *sharing) join(r *Request, want Verdict, results ...Result) {
	s.t.Helper()
	if v, err := s.Join(r, results); err != nil || v != want {
		s.t.Errorf("verdict %+v, %v; want %+v", v, err, want)
	}
}

func (s *sharing) wantDownloads(n int) {
	s.t.Helper()
	if got := s.cluster.Count(cluster.Origin); got != n {
		s.t.Errorf("%d downloads, want %d", got, n)
	}
}

func TestTheSecondRequestAwaitsTheFirst(t *testing.T) {
	s := newSharing(t, "")
	first, second := s.naming("a.png"), s.naming("b.png", "a.png")
	p1, p2 := s.plan(first, "R"), s.plan(second, "RA")
	woken := await(t.Context(), p2.Tasks[1])
	a, err := p1.Tasks[0].Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := p2.Tasks[0].Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shared := <-woken
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	s.join(first, Next, a)
	s.join(second, Next, b, shared.result)
	s.wantImages(first, "a.png")
	s.wantImages(second, "a.png", "b.png")
	s.wantDownloads(2)
	if first.fetching != nil || second.fetching != nil {
		t.Error("something is kept of what is done")
	}
}

// TestARequestLeadsWhatItHasAtWork, so that nobody waits for what it has not
// begun. Of the rest it looks what has become of it meanwhile: here one was
// downloaded, one is under way, one is nowhere.
func TestARequestLeadsWhatItHasAtWork(t *testing.T) {
	s := newSharing(t, `,"MaxConcurrentDownloads":1,"CacheSize":1`)
	many := s.naming("a.png", "b.png", "c.png", "d.png")
	p := s.plan(many, "RRRR")
	b, c := s.naming("b.png"), s.naming("c.png")
	pb, pc := s.plan(b, "R"), s.plan(c, "R")
	if _, err := pb.Tasks[0].Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var results []Result
	for _, task := range p.Tasks {
		result, err := task.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, result)
	}
	s.wantDownloads(3)
	s.join(many, Verdict{Again: stepMedia}, results...)
	again := s.plan(many, "A")
	woken := await(t.Context(), again.Tasks[0])
	if _, err := pc.Tasks[0].Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.join(many, Next, (<-woken).result)
	s.wantImages(many, "a.png", "b.png", "c.png", "d.png")
	s.wantDownloads(4)
}

// TestKeptImagesTakeNoWorker, and differently spelt URLs are one.
func TestKeptImagesTakeNoWorker(t *testing.T) {
	s := newSharing(t, `,"CacheSize":1`)
	r := s.naming("a.png")
	result, err := s.plan(r, "R").Tasks[0].Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.join(r, Next, result)
	url := s.cluster.ImageURL("a.png", cluster.ImageOptions{})
	r = s.request(wire.Chat, fmt.Sprintf(`{"messages":[{"role":"user","content":[{"image_url":%q},{"image_url":"%s"}]}]}`, url, strings.ReplaceAll(url, "/", `\/`)))
	s.join(r, Next, (<-await(t.Context(), s.plan(r, "A").Tasks[0])).result)
	s.wantImages(r, "a.png")
	s.wantDownloads(1)
}

// TestARequestThatEndsLeavesAll: what it leads and has not begun goes on for who
// waits, and two that wait for each other end.
func TestARequestThatEndsLeavesAll(t *testing.T) {
	s := newSharing(t, "")
	one, two := s.naming("a.png"), s.naming("a.png")
	s.plan(one, "R")
	woken := await(t.Context(), s.plan(two, "A").Tasks[0])
	one.Close() // it was refused, say
	one.Close()
	if w := <-woken; w.err != nil {
		t.Error(w.err)
	}
	s.wantDownloads(1)

	gate := s.cluster.Hold(cluster.Gate{Leg: cluster.Origin, At: cluster.AtHeaders})
	b, c := s.naming("b.png"), s.naming("c.png")
	pb, pc := s.plan(b, "R"), s.plan(c, "R")
	bc, cb := s.naming("b.png", "d.png"), s.naming("c.png", "d.png")
	p1, p2 := s.plan(bc, "RA"), s.plan(cb, "AA") // bc leads d
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 3)
	for _, task := range []Task{pb.Tasks[0], pc.Tasks[0], p1.Tasks[0]} {
		go func() {
			_, err := task.Run(ctx)
			ended <- err
		}()
	}
	for _, task := range []Task{p1.Tasks[1], p2.Tasks[0], p2.Tasks[1]} {
		await(ctx, task)
	}
	if err := gate.WaitFor(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	draining := wire.Faultf(wire.ShuttingDown, "shutting down")
	cancel(draining)
	for range 3 {
		if err := <-ended; err != error(draining) {
			t.Errorf("ended with %v", err)
		}
	}
	if err := s.cluster.Wait(t.Context(), func(st cluster.State) bool { return st.Aborted[cluster.Origin] == 3 }); err != nil {
		t.Error(err)
	}
}

func TestCacheParams(t *testing.T) {
	b := newBench(t, cluster.KVNixl)
	for text, want := range map[params]string{`{"CacheSize":-1}`: "cache_size: ", `{"CacheTTL":-1}`: "cache_ttl: "} {
		if _, err := NewMedia(b.deps, text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[params]string{"": "images of at most 10 MB, audio of at most 25 MB, video of at most 50 MB",
		`{"CacheSize":100}`: "images of at most 10 MB, audio of at most 25 MB, video of at most 50 MB, 100 MB of them kept for 5m0s"} {
		if got := fmt.Sprint(b.phase(NewMedia, text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
