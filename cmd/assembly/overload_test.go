package assembly_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestFullPoolRefusesAtOnce: a decode pool of 2 with a queue of 2, and 10 slow
// requests: 2 run, 2 wait, 6 are told to come back. While decode has no place
// no prefill is sent.
func TestFullPoolRefusesAtOnce(t *testing.T) {
	for name, limits := range map[string]string{
		"by the queue of decode":    "max_inflight_requests = 100\n",
		"by the requests in flight": "max_inflight_requests = 0\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{toml: "[actors]\n" + limits + "[actors.pools]\ndecode = { size = 2, queue = 2 }\n"})
			gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
			const n = 10
			answers := make(chan response, n)
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() { answers <- r.post(chatPath, chatBody("hi", false)) })
			}
			for range 6 {
				got := <-answers
				o := readError(t, got.body)
				if got.status != http.StatusTooManyRequests || o.Error.Type != "overloaded_error" || o.Error.Code != "queue_full" ||
					got.header.Get("Retry-After") != "1" {
					t.Errorf("got %d %v %s", got.status, got.header, got.body)
				}
			}
			if err := gate.WaitFor(within(t), 2); err != nil {
				t.Fatal(err)
			}
			if p := r.cluster.Count(cluster.Prefill); p != 2 {
				t.Errorf("%d prefills were sent for 2 decode places", p)
			}
			r.eventually("2 at work and 2 waiting", func() bool {
				s := poolOf(r, "decode")
				return s.Busy == 2 && s.Queued == 2
			})
			if p := r.cluster.Count(cluster.Prefill); p != 2 {
				t.Errorf("%d prefills were sent for 2 decode places", p)
			}
			gate.Release()
			wg.Wait()
			for range 4 {
				if got := <-answers; got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.body)
				}
			}
			r.settled()
		})
	}
}

func TestWaitingTooLongIsRefused(t *testing.T) {
	r := newRig(t, setup{toml: "[actors]\nqueue_timeout = \"100ms\"\n[actors.pools]\ndecode = { size = 1, queue = 2 }\n"})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	first := make(chan response)
	go func() { first <- r.post(chatPath, chatBody("hi", false)) }()
	if err := gate.WaitFor(within(t), 1); err != nil {
		t.Fatal(err)
	}
	got := r.post(chatPath, chatBody("hi", false))
	if o := readError(t, got.body); got.status != http.StatusTooManyRequests || o.Error.Code != "queue_full" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	gate.Release()
	if got := <-first; got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.settled()
}

// eventually waits for a state that nothing announces. It looks again and again, but not
// so often that nobody else gets on.
func (r *rig) eventually(what string, reached func() bool) {
	r.t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for ctx := within(r.t); !reached(); {
		select {
		case <-look.C:
		case <-ctx.Done():
			r.t.Fatalf("never %s: %+v", what, r.Engine.Status())
		}
	}
}
