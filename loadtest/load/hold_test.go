package load

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"
)

// endless is a stream that goes on: one event, and one more whenever it is told.
func endless(more <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			io.WriteString(w, "data: {}\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
	}
}

func TestStreamsAreHeld(t *testing.T) {
	more := make(chan struct{}, 20)
	o := HoldOptions{Target: serve(t, endless(more)), Streams: 20, Opening: 3, OpenWithin: time.Minute, For: 50 * time.Millisecond,
		Opened: func() {
			for range 20 {
				more <- struct{}{}
			}
		}}
	o.PID = os.Getpid()
	r, err := Hold(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Open != 20 || r.Missing != 0 || r.Broken != 0 || r.Events > 20 || r.Process == nil || r.Process.RSSBefore <= 0 || !r.Settings.Request.Stream {
		t.Errorf("%+v %+v", r, r.Process)
	}
}

func TestStreamsThatAreMissing(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) })
	r, err := Hold(t.Context(), HoldOptions{Target: target, Streams: 5, OpenWithin: time.Minute, For: time.Millisecond})
	if err != nil || r.Open != 0 || r.Missing != 5 || r.BytesPerStream != 0 {
		t.Errorf("%+v %v", r, err)
	}
}

// TestHoldingEnds at every stage.
func TestHoldingEnds(t *testing.T) {
	target := serve(t, endless(nil))
	ctx, cancel := context.WithCancel(t.Context())
	o := HoldOptions{Target: target, Streams: 5, OpenWithin: time.Minute, For: time.Hour, Opened: cancel}
	if _, err := Hold(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("while they are held: %v", err)
	}
	silent := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	o = HoldOptions{Target: silent, Streams: 5, OpenWithin: time.Millisecond, For: time.Hour}
	if _, err := Hold(t.Context(), o); err == nil {
		t.Error("streams that do not open are held")
	}
	if _, err := Hold(t.Context(), HoldOptions{Target: target, Streams: 5}); err == nil {
		t.Error("streams are held for no time")
	}
}
