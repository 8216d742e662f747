package media

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestAnswersThatFail(t *testing.T) {
	tests := []struct {
		name, answer string
		want         wire.Kind
		message      string
	}{
		{"404", "HTTP/1.1 404 " + secret + "\r\n\r\n" + secret, wire.BadRequest, "its origin answered 404"},
		{"400 with an image", "HTTP/1.1 400 Bad\r\n\r\n" + png, wire.BadRequest, "its origin answered 400"},
		{"401", "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic\r\n\r\n", wire.BadRequest, "its origin answered 401"},
		{"429", "HTTP/1.1 429 Slow\r\nRetry-After: 1\r\n\r\n", wire.BadRequest, "its origin answered 429"},
		{"204", "HTTP/1.1 204 None\r\n\r\n", wire.BadRequest, "its origin answered 204"},
		{"206", "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-7/100\r\n\r\n" + png, wire.BadRequest, "its origin answered 206"},
		{"redirect to nowhere", "HTTP/1.1 302 Found\r\n\r\n" + png, wire.BadRequest, "its origin answered 302"},
		{"500", "HTTP/1.1 500 Oops\r\n\r\n" + secret, wire.UpstreamFailed, "its origin answered 500"},
		{"503 with an image", "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n\r\n" + png, wire.UpstreamFailed, "its origin answered 503"},
		{"999", "HTTP/1.1 999 Odd\r\n\r\n", wire.UpstreamFailed, "its origin answered 999"},
		{"101", "HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", wire.UpstreamFailed, "its origin broke off"},
		{"hang-up", "", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"hang-up in the head", "HTTP/1.1 200 OK\r\nContent-Le", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"hang-up at the head's end", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"hang-up in the signature", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + png[:4], wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"hang-up in the body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + png + "abc", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"hang-up in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + png + "abcdefgh\r\n", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"bad chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + png + "\r\n" + secret + "\r\n", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"no HTTP", "SSH-2.0-" + secret + "\r\n", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"malformed header", "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"malformed length", "HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n", wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"headers without end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-"+secret+": 1\r\n", 10_000), wire.UpstreamFailed, "its origin could not be reached or broke off"},
		{"preliminary answers without end", strings.Repeat("HTTP/1.1 103 Hint\r\nX-A: "+secret+"\r\n\r\n", 10_000), wire.UpstreamFailed, "its origin could not be reached or broke off"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := hosting(says(t, tt.answer)).fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/"+secret+"?"+secret)
			wantFault(t, err, tt.want, "media_fetch_failed")
			if got := wire.FaultOf(err).Message; got != "the image at http://img.test could not be fetched: "+tt.message {
				t.Errorf("message %q", got)
			}
		})
	}
}

// TestConnectionsThatFail: the client sees that it failed, the log sees why.
func TestConnectionsThatFail(t *testing.T) {
	dns := func(edit func(*net.DNSError)) answer {
		e := &net.DNSError{Err: "oops", Name: "img.test", Server: "10.0.0.10:53"}
		edit(e)
		return answer{err: e}
	}
	tests := []struct {
		name   string
		answer answer
		want   wire.Kind
		log    string
	}{
		{"refused", answer{addrs: []string{"8.8.8.8"}}, wire.UpstreamFailed, "no connection: dial tcp: connection refused"},
		{"no such host", dns(func(e *net.DNSError) { e.IsNotFound = true }), wire.BadRequest, "img.test: no such host"},
		{"no addresses", answer{}, wire.BadRequest, "img.test: no such host"},
		{"private", answer{addrs: []string{"10.0.0.1"}}, wire.BadRequest, "img.test at 10.0.0.1: private"},
		{"resolver fails", dns(func(*net.DNSError) {}), wire.UpstreamFailed, "no connection: lookup img.test on 10.0.0.10:53: oops"},
		{"resolver is slow", dns(func(e *net.DNSError) { e.IsTimeout = true }), wire.UpstreamTimeout, "no connection: lookup img.test on 10.0.0.10:53: oops"},
	}
	for _, tt := range tests {
		w := &world{names: map[string][]answer{"img.test": {tt.answer}}}
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/?"+secret)
		wantFault(t, err, tt.want, "media_fetch_failed")
		if f := wire.FaultOf(err); f.Cause == nil || f.Cause.Error() != tt.log || strings.Contains(f.Message, "10.0.0") {
			t.Errorf("%s: %q because of %v, want %s", tt.name, f.Message, f.Cause, tt.log)
		}
	}
}

// stalls are worlds in which the download of a URL never ends.
var stalls = map[string]func(*testing.T) (*world, string){
	"request not read": silentAfter("-"),
	"no answer":        silentAfter(""),
	"in the head":      silentAfter("HTTP/1.1 200 OK\r\nX-"),
	"before the body":  silentAfter("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
	"in the signature": silentAfter("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + png[:4]),
	"in the body":      silentAfter("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + png + "abcdefgh"),
	"at the limit":     silentAfter("HTTP/1.1 200 OK\r\n\r\n" + string(image(1<<20))),
	"behind a redirect": func(t *testing.T) (*world, string) {
		w := hosting(says(t, "HTTP/1.1 302 Found\r\nLocation: http://other.test/\r\n\r\n"))
		w.names["other.test"], w.listen["8.8.8.8:80"] = at("8.8.8.8"), stuck(t, "")
		return w, "http://img.test/"
	},
	"TLS handshake": func(t *testing.T) (*world, string) { return hosting(stuck(t, "-")), "https://img.test/" },
	"connect": func(*testing.T) (*world, string) {
		return &world{blackholes: []string{"8.8.8.8:80"}}, "http://8.8.8.8/"
	},
	"connect to several": func(*testing.T) (*world, string) {
		w := &world{names: map[string][]answer{"img.test": at("8.8.8.8", "8.8.4.4")}, blackholes: []string{"8.8.8.8:80", "8.8.4.4:80"}}
		return w, "http://img.test"
	},
	"look-up": func(*testing.T) (*world, string) {
		return &world{names: map[string][]answer{"img.test": {{err: errSilent}}}}, "http://img.test"
	},
}

func silentAfter(text string) func(*testing.T) (*world, string) {
	return func(t *testing.T) (*world, string) { return hosting(stuck(t, text)), "http://img.test/" }
}

// stuck is an origin that says text to a request and then nothing, until it is
// hung up on. With "-" it does not even hear the request.
func stuck(t *testing.T, text string) *cluster.PipeListener {
	return raw(t, func(c *conn) {
		if text == "-" {
			<-t.Context().Done()
			return
		}
		c.hear()
		c.say(text)
		io.Copy(io.Discard, c)
	})
}

func TestSlowDownloads(t *testing.T) {
	for name, world := range stalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, url := world(t)
				began := time.Now()
				_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, url)
				wantFault(t, err, wire.UpstreamTimeout, "media_fetch_failed")
				synctest.Wait()
				if n, took := w.connections(), time.Since(began); n != 0 || took != 10*time.Second {
					t.Errorf("%d connections are open after %v", n, took)
				}
			})
		})
	}
}

// breaking is a connection on which reading fails.
type breaking struct {
	net.Conn
	err error
}

func (c *breaking) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: c.err}
}

func TestConnectionsThatBreak(t *testing.T) {
	for err, want := range map[error]wire.Kind{syscall.ECONNRESET: wire.UpstreamFailed, syscall.ETIMEDOUT: wire.UpstreamTimeout} {
		w := hosting(stuck(t, ""))
		f := w.fetcher(t, func(s *Settings) {
			s.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				c, dialErr := w.dial(ctx, network, address)
				return &breaking{c, err}, dialErr
			}
		})
		_, got := f.Fetch(t.Context(), wire.Image, "http://img.test")
		wantFault(t, got, want, "media_fetch_failed")
		if !errors.Is(got, err) {
			t.Errorf("%v is not in the chain of %v", err, got)
		}
	}
}

// TestTrickle: it is the whole download that has a time-out.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := hosting(raw(t, func(c *conn) {
			c.hear()
			for ok := c.say(head200 + "\r\n" + png); ok; ok = c.say("x") {
				<-time.After(time.Second)
			}
		}))
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
		wantFault(t, err, wire.UpstreamTimeout, "media_fetch_failed")
	})
}

// TestDeadAddressLeavesTime for those behind it.
func TestDeadAddressLeavesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := hosting(says(t, head200+"\r\n"+png))
		w.names["img.test"] = at("8.8.8.8", "8.8.4.4", "93.184.216.34")
		w.blackholes = []string{"8.8.8.8:80"}
		began := time.Now()
		if _, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/"); err != nil {
			t.Error(err)
		}
		if took, want := time.Since(began), 10*time.Second/3; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
		if want := []string{"8.8.8.8:80", "8.8.4.4:80", "93.184.216.34:80"}; !slices.Equal(w.dialed, want) {
			t.Errorf("dialed %q", w.dialed)
		}
	})
}

// TestClientLeaves at every point of a download: it ends at once, and with it
// the connection.
func TestClientLeaves(t *testing.T) {
	draining := wire.Faultf(wire.ShuttingDown, "shutting down")
	for name, world := range stalls {
		for _, cause := range []error{nil, errors.New("gone"), draining} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, url := world(t)
					ctx, cancel := context.WithCancelCause(t.Context())
					f := w.fetcher(t)
					done := make(chan error)
					go func() {
						_, err := f.Fetch(ctx, wire.Image, url)
						done <- err
					}()
					synctest.Wait()
					began := time.Now()
					cancel(cause)
					err := <-done
					synctest.Wait()
					if n := w.connections(); n != 0 || time.Since(began) != 0 {
						t.Errorf("%d connections are open after %v", n, time.Since(began))
					}
					if cause == error(draining) {
						if err != error(draining) {
							t.Errorf("got %v", err)
						}
						return
					}
					wantFault(t, err, wire.Canceled, "client_closed_request")
				})
			})
		}
	}
}

func TestClientHasLeftBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := hosting(says(t, ""))
	_, err := w.fetcher(t).Fetch(ctx, wire.Image, "http://img.test/")
	wantFault(t, err, wire.Canceled, "client_closed_request")
}
