package load

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Kinds of failures that are no answer, in [Report.Transport].
const (
	Refused    = "refused"    // there was no connection: nobody listens
	Reset      = "reset"      // the connection was reset
	Broken     = "broken"     // it ended within an answer, or before one
	TimedOut   = "timeout"    // Options.Timeout, or a network's time-out
	Unfinished = "unfinished" // a stream that ended well, but without [DONE]
	Empty      = "empty"      // an answer without a body
	Other      = "other"
)

// client makes one request after the other. It belongs to one goroutine.
type client struct {
	request   *http.Request
	body      *body
	bodies    *bodies
	transport http.RoundTripper
	timeout   time.Duration
	onGap     func(time.Duration) // of two pieces of a stream
	buf       [8 << 10]byte
	events    events
}

func newClient(t Target, r Request, b *bodies, transport http.RoundTripper) (*client, error) {
	request, err := http.NewRequest(http.MethodPost, t.URL+paths[r.Kind], nil)
	if err != nil {
		return nil, err
	}
	for name, values := range t.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	request.Header.Set("Content-Type", "application/json")
	request.ContentLength = b.size
	c := &client{request: request, bodies: b, transport: transport, onGap: func(time.Duration) {}}
	c.replace()
	return c, nil
}

// replace begins with another request and body, because the transport may still
// be at the old ones.
func (c *client) replace() {
	c.body = c.bodies.body()
	c.request = c.request.WithContext(c.request.Context())
	c.request.Body = c.body
}

// outcome is what became of a request. Exactly one of code and failure is set if
// it is not well; a request that was cut is neither.
type outcome struct {
	status    int    // 0: there was no answer
	code      string // of an error object
	failure   string // see Refused and the others
	cut       bool   // the run ended
	first     time.Duration
	total     time.Duration
	events    int64
	bytesRead int64
}

func (o *outcome) ok() bool { return o.status/100 == 2 && o.code == "" && o.failure == "" && !o.cut }

// do makes a request that should have begun at a time. cut is whether what
// ended ctx, if it did, was the run.
func (c *client) do(ctx context.Context, began time.Time) (o outcome) {
	c.body.renew()
	limited := ctx
	if c.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	if c.request.Context() != limited {
		c.request = c.request.WithContext(limited)
	}
	answer, err := c.transport.RoundTrip(c.request)
	if err == nil {
		o.status = answer.StatusCode
		err = c.read(answer, began, &o)
		answer.Body.Close()
	}
	o.total = time.Since(began)
	if err != nil && o.code == "" {
		o.cut = ctx.Err() != nil
		if !o.cut {
			o.failure = kindOf(err)
		}
	}
	if o.ok() {
		<-c.body.closed // so that both can be used again
	} else {
		c.replace()
	}
	return o
}

// read reads an answer to its end.
func (c *client) read(answer *http.Response, began time.Time, o *outcome) error {
	if o.status/100 != 2 {
		n, err := io.ReadFull(answer.Body, c.buf[:])
		o.bytesRead = int64(n)
		if o.code = errorCode(c.buf[:n]); err == io.EOF || err == io.ErrUnexpectedEOF {
			err = nil
		}
		return err
	}
	if isStream(answer.Header) {
		return c.readStream(answer.Body, began, o)
	}
	for {
		n, err := answer.Body.Read(c.buf[:])
		if n > 0 && o.bytesRead == 0 {
			o.first = time.Since(began)
		}
		o.bytesRead += int64(n)
		switch {
		case err == io.EOF && o.bytesRead == 0:
			o.failure = Empty
			return nil
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func isStream(h http.Header) bool {
	const kind = "text/event-stream"
	given := h.Get("Content-Type")
	return len(given) >= len(kind) && given[:len(kind)] == kind
}

// readStream reads events. Those that come in one piece are one arrival.
func (c *client) readStream(stream io.Reader, began time.Time, o *outcome) error {
	c.events.reset()
	last := began
	for {
		n, err := stream.Read(c.buf[:])
		o.bytesRead += int64(n)
		if c.events.write(c.buf[:n]) > 0 {
			now := time.Now()
			if o.events == 0 {
				o.first = now.Sub(began)
			} else {
				c.onGap(now.Sub(last))
			}
			last, o.events = now, c.events.count
		}
		if err == nil {
			continue
		}
		o.code = c.events.code
		if err != io.EOF {
			return err
		}
		if o.code == "" && !c.events.done {
			o.failure = Unfinished
		}
		return nil
	}
}

// kindOf says what kind of failure an error of the transport is.
func kindOf(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Broken
	}
	return Other
}
