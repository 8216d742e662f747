package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// TestClientThatLeaves: its request is cancelled, and the handler stays until
// nothing of the request is left.
func TestClientThatLeaves(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cleanup := make(chan struct{})
			canceled := make(chan struct{})
			r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
				if streaming {
					say(ctx, out, events, "data: 1\n\n")
				}
				<-ctx.Done()
				close(canceled)
				<-cleanup
				return wire.Faultf(wire.Canceled, "the client left")
			}))
			ctx, leave := context.WithCancel(t.Context())
			if streaming {
				resp := r.open(ctx)
				defer resp.Body.Close()
			} else {
				go func() {
					req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://coordinator.test"+completionsPath, strings.NewReader(hello))
					if _, err := r.client.Do(req); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}()
			}
			synctest.Wait()
			if r.metric("request_running") != 1 {
				t.Error("no request is running")
			}
			leave()
			<-canceled
			synctest.Wait()
			if len(r.records) != 0 || r.metric("request_running") != 1 {
				t.Error("the handler did not wait for the end of its request")
			}
			close(cleanup)
			want := 499
			if streaming {
				want = 200
			}
			if rec := <-r.records; rec.Status != want || rec.Code != "client_closed_request" {
				t.Errorf("%+v", rec)
			}
			synctest.Wait()
			if n := r.metric("request_running"); n != 0 {
				t.Errorf("%v are running", n)
			}
		})
	}
}

// flood sends chunks until it is stopped.
func flood(ctx context.Context, out *phases.Response) error {
	if err := say(ctx, out, events); err != nil {
		return err
	}
	for {
		if err := say(ctx, out, nil, strings.Repeat("x", 8<<10)); err != nil {
			return err
		}
	}
}

// TestClientThatTakesNothing is dropped after the write time-out, which may be a
// sixteenth longer, and not before.
func TestClientThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := make(chan error, 1)
		r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
			err := flood(ctx, out)
			stopped <- err
			return err
		}))
		c, in := r.dial()
		began := time.Now()
		if _, err := c.Write([]byte(request("POST", completionsPath, len(hello), hello))); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; err == nil || time.Since(began) < 20*time.Second || time.Since(began) > 20*time.Second*17/16 {
			t.Errorf("stopped with %v after %v", err, time.Since(began))
		}
		if rec := <-r.records; rec.Status != 200 || rec.Code != "client_closed_request" {
			t.Errorf("%+v", rec)
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			t.Errorf("the connection stays: %v", err)
		}
	})
}

// TestSlowClientIsServed as long as it takes something, however much more is
// waiting for it all the time.
func TestSlowClientIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plays(flood))
		ctx, leave := context.WithCancel(t.Context())
		resp := r.open(ctx)
		defer resp.Body.Close()
		buf := make([]byte, 8<<10)
		for i := range 20 {
			wait(15 * time.Second)
			if _, err := io.ReadFull(resp.Body, buf); err != nil {
				t.Fatalf("dropped at chunk %d: %v", i, err)
			}
		}
		leave()
		<-r.records
	})
}

// TestClientThatDoesNotTakeTheEnd is dropped too: what net/http writes when the
// handler has returned had no deadline.
func TestClientThatDoesNotTakeTheEnd(t *testing.T) {
	tests := []struct {
		name string
		play engine
		read string // up to here
	}{
		{"of a stream", plays(func(ctx context.Context, out *phases.Response) error { return say(ctx, out, events, "data: 1\n\n") }), "data: 1\n\n\r\n"},
		{"of an error", plays(func(context.Context, *phases.Response) error { return broken }), "HTTP/1.1 502"},
		{"of a refusal", func(context.Context, *phases.Request) error { return broken }, "HTTP/1.1 502"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, tt.play)
				c, _ := r.dial()
				c.Write([]byte(request("POST", completionsPath, len(hello), hello)))
				got, one := "", make([]byte, 1)
				for !strings.HasSuffix(got, tt.read) {
					if _, err := c.Read(one); err != nil {
						t.Fatal(err)
					}
					got += string(one)
				}
				wait(time.Minute)
				if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
					t.Errorf("still there: %q, %v", rest, err)
				}
			})
		})
	}
}

// TestLongPausesAreNobodysFault: neither time-out is for the answer as a whole.
// With http.Server.ReadTimeout the request's context would end, with its
// WriteTimeout the stream.
func TestLongPausesAreNobodysFault(t *testing.T) {
	tests := []struct {
		name  string
		end   error
		wants func(t *testing.T, body string, err error)
	}{
		{"a good end", nil, func(t *testing.T, body string, err error) {
			if body != "data: 1\n\ndata: 2\n\n" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		}},
		{"a failure", broken, func(t *testing.T, body string, err error) {
			if !strings.HasPrefix(body, "data: 1\n\ndata: 2\n\ndata: {\"error\"") || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q, %v", body, err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
					wait(time.Hour)
					if err := say(ctx, out, events, "data: 1\n\n"); err != nil {
						return err
					}
					wait(time.Hour)
					if err := say(ctx, out, nil, "data: 2\n\n"); err != nil {
						return err
					}
					wait(time.Hour)
					if ctx.Err() != nil {
						t.Error(context.Cause(ctx))
					}
					return tt.end
				}))
				got := r.post(hello)
				tt.wants(t, got.body, got.err)
				if rec := <-r.records; rec.Total != 3*time.Hour || rec.FirstByte != time.Hour {
					t.Errorf("%+v", rec)
				}
			})
		})
	}
}

// TestLongPausesOverHTTP2: a write's deadline there ends a stream even if nothing is
// being written.
func TestLongPausesOverHTTP2(t *testing.T) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	for _, streamed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := head(200)
			if streamed {
				h = events
			}
			r := startWith(t, protocols, plays(func(ctx context.Context, out *phases.Response) error {
				wait(time.Hour)
				if err := say(ctx, out, h, "data: 1\n\n"); err != nil {
					return err
				}
				wait(time.Hour)
				err := say(ctx, out, nil, "data: 2\n\n")
				wait(time.Hour)
				return err
			}))
			if got := r.post(hello); got.err != nil || got.body != "data: 1\n\ndata: 2\n\n" {
				t.Errorf("streamed %t: %q, %v", streamed, got.body, got.err)
			}
			if rec := <-r.records; rec.Code != "" || rec.Total != 3*time.Hour {
				t.Errorf("streamed %t: %+v", streamed, rec)
			}
		})
	}
}

// TestErrorAfterALongPause is written too.
func TestErrorAfterALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plays(func(context.Context, *phases.Response) error {
			wait(time.Hour)
			return broken
		}))
		wantError(t, r.post(hello), 502, "upstream_error", "upstream_failed")
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, ok)
		c, in := r.dial()
		go c.Write([]byte(request("GET", "/healthz", 0, "")))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		read(resp)
		began := time.Now()
		if _, err := in.ReadByte(); err != io.EOF || time.Since(began) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestNoLimits: zero is none.
func TestNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plays(func(ctx context.Context, out *phases.Response) error {
			return say(ctx, out, events, "data: 1\n\n")
		}), func(s *Settings) { s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 0, 0, 0 })
		c, in := r.dial()
		text := request("POST", completionsPath, len(hello), hello)
		go func() {
			for i := range text {
				wait(time.Hour)
				c.Write([]byte(text[i : i+1]))
			}
		}()
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		wait(time.Hour)
		if got := read(resp); got.body != "data: 1\n\n" || got.err != nil {
			t.Errorf("%+v", got)
		}
	})
}
