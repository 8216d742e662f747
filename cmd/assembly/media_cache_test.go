package assembly_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/metricstest"
)

// sharingRig is a rig whose media step has these params besides.
func sharingRig(t *testing.T, params, toml string) *rig {
	step := mediaStep
	if params != "" {
		step = strings.Replace(mediaStep, " }", ", "+params+" }", 1)
	}
	return newRig(t, setup{steps: step + renderStep + encodeStep + prefillStep + decodeStep, toml: toml})
}

// urls are a chat request for images by their URLs.
func urls(all ...string) string {
	var parts []string
	for _, u := range all {
		parts = append(parts, fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, u))
	}
	return `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"text","text":"one two"},` + strings.Join(parts, ",") + `]}]}`
}

func (r *rig) image(name string) string { return r.cluster.ImageURL(name, cluster.ImageOptions{}) }

// sending is a request under way, whose client may leave.
type sending struct {
	answer chan response
	leave  context.CancelFunc
}

func (r *rig) begin(body, id string) *sending {
	ctx, leave := context.WithCancel(within(r.t))
	s := &sending{make(chan response, 1), leave}
	go func() { s.answer <- r.postCtx(ctx, chatPath, body, "X-Request-Id", id) }()
	return s
}

// awaitMetric waits until a metric with a label has a value.
func (r *rig) awaitMetric(name, label string, want float64) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%s{%s} %v", name, label, want), func() bool { return r.labelled(name, label) == want })
}

// labelled is the sum of a metric's series that have a label of this value; of a
// histogram, how many values it has got.
func (r *rig) labelled(name, label string) (sum float64) {
	for labels, value := range metricstest.Of(r.t, r.Registry, name) {
		if strings.Contains(labels, fmt.Sprintf("=%q", label)) {
			sum += value
		}
	}
	return sum
}

// wantImage fails the test unless an answer names these images.
func wantImage(t *testing.T, got response, names ...string) {
	t.Helper()
	var hashes []string
	for _, name := range names {
		hashes = append(hashes, cluster.ImageHash(cluster.ImageBytes(name, 0)))
	}
	if want := cluster.ReplyWithImages("one two", hashes...); got.status != http.StatusOK || said(t, got.body, false) != want {
		t.Errorf("got %d %v %s, want %s", got.status, got.err, got.body, want)
	}
}

// TestOneDownloadForManyRequests: all wait for one leg, with one worker of one.
// A second worker is there for another URL.
func TestOneDownloadForManyRequests(t *testing.T) {
	for _, n := range []int{50, 101} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := sharingRig(t, "", "[actors.pools]\nmedia = { size = 1, queue = 1 }\n")
			gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Origin, At: cluster.AtHeaders})
			var all []*sending
			for i := range n {
				all = append(all, r.begin(urls(r.image("a.png")), fmt.Sprint("id-", i)))
			}
			r.awaitMetric("media_cache_total", "shared", float64(n-1))
			if err := gate.WaitFor(within(t), 1); err != nil {
				t.Fatal(err)
			}
			if p := poolOf(r, phases.PoolMedia); p.Busy != 1 || p.Queued != 0 {
				t.Errorf("%+v", p)
			}
			if n == 101 {
				if err := r.Engine.Resize(phases.PoolMedia, actors.PoolSettings{Size: 2, Queue: 1}); err != nil {
					t.Fatal(err)
				}
				other := r.begin(urls(r.image("b.png")), "other")
				if err := gate.WaitFor(within(t), 2); err != nil { // it does not wait behind the hundred
					t.Fatal(err)
				}
				defer func() { wantImage(t, <-other.answer, "b.png"); r.settled() }()
			}
			gate.Release()
			for _, s := range all {
				wantImage(t, <-s.answer, "a.png")
			}
			if n == 50 {
				r.settled()
				if legs := r.cluster.Count(cluster.Origin); legs != 1 || r.labelled("media_cache_total", "miss") != 1 {
					t.Errorf("%d downloads", legs)
				}
			}
		})
	}
}

// TestLeavingOthersDownloads: a download ends when nobody waits any more, and
// not before.
func TestLeavingOthersDownloads(t *testing.T) {
	for _, tt := range []struct {
		name   string
		leaves []int // of three; 0 leads
	}{
		{"the leader", []int{0}},
		{"a follower", []int{2}},
		{"the leader and a follower", []int{0, 1}},
		{"all, the leader first", []int{0, 1, 2}},
		{"all, the leader last", []int{2, 1, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := sharingRig(t, "", "")
			gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Origin, At: cluster.AtHeaders})
			all := []*sending{r.begin(urls(r.image("a.png")), "id-0")}
			if err := gate.WaitFor(within(t), 1); err != nil {
				t.Fatal(err)
			}
			all = append(all, r.begin(urls(r.image("a.png")), "id-1"), r.begin(urls(r.image("a.png")), "id-2"))
			r.awaitMetric("media_cache_total", "shared", 2)
			left := map[int]bool{}
			for _, i := range tt.leaves {
				if st := r.cluster.State(); st.Aborted[cluster.Origin] != 0 {
					t.Errorf("aborted before the last has left")
				}
				all[i].leave()
				<-all[i].answer
				<-r.finished // its handler has returned: it hangs on to nothing
				r.sent.Add(-1)
				left[i] = true
			}
			if p := poolOf(r, phases.PoolMedia); left[0] && p.Busy != 0 {
				t.Errorf("the leader's worker is busy: %+v", p)
			}
			if len(left) == 3 {
				r.settled()
				if st := r.cluster.State(); st.Aborted[cluster.Origin] != 1 {
					t.Errorf("%+v", st.Aborted)
				}
			}
			gate.Release()
			for i, s := range all {
				if !left[i] {
					wantImage(t, <-s.answer, "a.png")
				}
			}
			r.settled()
			if legs := r.cluster.Count(cluster.Origin); legs != 1 {
				t.Errorf("%d downloads", legs)
			}
		})
	}
}

// TestLeaderThatNeverGetsAWorker leaves, or is refused: those that wait for its
// download get it all the same.
func TestLeaderThatNeverGetsAWorker(t *testing.T) {
	for _, refused := range []bool{true, false} {
		t.Run(fmt.Sprintf("refused=%t", refused), func(t *testing.T) {
			toml := "[actors.pools]\nmedia = { size = 1, queue = 1 }\n"
			if refused {
				toml = "[actors]\nqueue_timeout = \"6s\"\n" + toml
			}
			r := sharingRig(t, "", toml)
			gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Origin, At: cluster.AtHeaders, Times: 1})
			busy := r.begin(urls(r.image("busy.png")), "busy")
			if err := gate.WaitFor(within(t), 1); err != nil {
				t.Fatal(err)
			}
			leader := r.begin(urls(r.image("a.png")), "leader")
			r.awaitMetric("media_cache_total", "miss", 2)
			follower := r.begin(urls(r.image("a.png")), "follower")
			r.awaitMetric("media_cache_total", "shared", 1)
			if !refused {
				leader.leave()
			}
			if got := <-leader.answer; refused && got.status != http.StatusTooManyRequests {
				t.Errorf("the leader got %d %s", got.status, got.body)
			}
			wantImage(t, <-follower.answer, "a.png") // while the only worker is busy
			gate.Release()
			wantImage(t, <-busy.answer, "busy.png")
			r.settled()
		})
	}
}

// TestManyImagesAreSharedToo: more than a request may download at a time.
func TestManyImagesAreSharedToo(t *testing.T) {
	r := sharingRig(t, "max_concurrent_downloads = 2, cache_size = 1", "[actors.pools]\nmedia = { size = 4, queue = 100 }\n")
	names := []string{"a.png", "b.png", "c.png", "d.png", "e.png", "f.png", "g.png"}
	back := []string{"g.png", "f.png", "e.png", "d.png", "c.png", "b.png", "a.png"}
	of := func(names []string) (all []string) {
		for _, name := range names {
			all = append(all, r.image(name))
		}
		return all
	}
	var all []*sending
	for i := range 10 {
		if i%2 == 0 {
			all = append(all, r.begin(urls(of(names)...), fmt.Sprint("id-", i)))
		} else {
			all = append(all, r.begin(urls(of(back)...), fmt.Sprint("id-", i)))
		}
	}
	for i, s := range all {
		if i%2 == 0 {
			wantImage(t, <-s.answer, names...)
		} else {
			wantImage(t, <-s.answer, back...)
		}
	}
	r.settled()
	if n := r.cluster.Count(cluster.Origin); n != len(names) {
		t.Errorf("%d downloads of %d images", n, len(names))
	}
}

// TestFailureOfASharedDownload reaches each that waits, with its own id, and
// nobody later.
func TestFailureOfASharedDownload(t *testing.T) {
	r := sharingRig(t, "cache_size = 10", "")
	r.cluster.AddFault(cluster.Fault{Leg: cluster.Origin, Status: 503, Times: 1})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Origin, At: cluster.AtArrival})
	var all []*sending
	for i := range 5 {
		all = append(all, r.begin(urls(r.image("a.png")), fmt.Sprint("id-", i)))
	}
	r.awaitMetric("media_cache_total", "shared", 4)
	gate.Release()
	for i, s := range all {
		got := <-s.answer
		if o := readError(t, got.body); got.status != http.StatusBadGateway || o.Error.Code != "media_fetch_failed" || !strings.Contains(o.Error.Message, fmt.Sprint("id-", i)) {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	wantImage(t, r.post(chatPath, urls(r.image("a.png"))), "a.png")
	r.settled()
}

// TestKeptImages are downloaded once, unless their origin does not want it.
func TestKeptImages(t *testing.T) {
	for _, tt := range []struct {
		params, header string
		downloads      int
	}{
		{"cache_size = 10", "", 1},
		{"cache_size = 10", "public, max-age=60", 1},
		{"cache_size = 10", "no-store", 3},
		{"cache_size = 10", "private", 3},
		{"cache_size = 10, cache_ttl = \"1ns\"", "", 3},
		{"", "", 3},
	} {
		t.Run(tt.params+" "+tt.header, func(t *testing.T) {
			r := sharingRig(t, tt.params, "")
			if tt.header != "" {
				r.cluster.AddFault(cluster.Fault{Leg: cluster.Origin, Headers: map[string]string{"Cache-Control": tt.header}})
			}
			for range 3 {
				wantImage(t, r.post(chatPath, urls(r.image("a.png"), r.image("a.png"))), "a.png", "a.png")
			}
			r.settled()
			if n := r.cluster.Count(cluster.Origin); n != tt.downloads {
				t.Errorf("%d downloads, want %d", n, tt.downloads)
			}
			if hits := r.labelled("media_cache_total", "hit"); hits != float64(3-tt.downloads) {
				t.Errorf("%v hits", hits)
			}
			wantImage(t, r.post(chatPath, urls(r.image("b.png"))), "b.png")
			r.settled()
		})
	}
}

// TestCutWhileOthersWait: the end of the process ends a shared download, stray
// or not.
func TestCutWhileOthersWait(t *testing.T) {
	r := sharingRig(t, "", "[server]\nshutdown_timeout = \"1ms\"\n")
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Origin, At: cluster.AtHeaders})
	leader := r.begin(urls(r.image("a.png")), "leader")
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	follower := r.begin(urls(r.image("a.png"), r.image("b.png")), "follower")
	if err := gate.WaitFor(within(t), 2); err != nil {
		t.Fatal(err)
	}
	another := r.begin(urls(r.image("b.png")), "another")
	r.awaitMetric("media_cache_total", "shared", 2)
	leader.leave()
	<-leader.answer
	r.stop()
	if o := <-r.ended; o.err != nil || o.cut < 2 {
		t.Errorf("%+v", o)
	}
	r.ended <- outcome{}
	for _, s := range []*sending{follower, another} {
		if got := <-s.answer; got.status != http.StatusServiceUnavailable {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	r.settled()
}

// TestCredentialsInURLsAreNotLogged, nor said, nor made into labels.
func TestCredentialsInURLsAreNotLogged(t *testing.T) {
	const secret = "s3cr3t-signature"
	r := sharingRig(t, "cache_size = 10", "")
	good := r.image("a.png")
	user := strings.Replace(good, "http://", "http://"+secret+":"+secret+"@", 1)
	for _, tt := range []struct {
		url    string
		status int
	}{
		{good + "?bytes=300&sig=" + secret, 400}, // the origin knows no such parameter
		{strings.Replace(good, "a.png", secret, 1), 400},
		{user, 400},
		{"http://" + secret + "@169.254.169.254/", 400},
		{"http://169.254.169.254/?" + secret, 400},
		{"http://127.0.0.1:1/" + secret + "?" + secret + "#" + secret, 502},
		{r.cluster.ImageURL("a.png", cluster.ImageOptions{RedirectTo: user}), 400},
		{r.cluster.ImageURL("a.png", cluster.ImageOptions{RedirectTo: "http://127.0.0.1:1/?" + secret}), 502},
		{good + "#" + secret, 200},
	} {
		for range 2 {
			got := r.post(chatPath, urls(tt.url))
			if got.status != tt.status || strings.Contains(got.body, secret) {
				t.Errorf("%s: got %d %s", tt.url, got.status, got.body)
			}
		}
	}
	r.settled()
	if strings.Contains(r.logs.String(), secret) {
		t.Errorf("logged:\n%s", r.logs)
	}
	families, err := r.Registry.Gather()
	if err != nil || strings.Contains(fmt.Sprint(families), secret) {
		t.Errorf("a label: %v", err)
	}
}
