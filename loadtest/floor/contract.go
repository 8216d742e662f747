package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"
)

// The contract is what a coordinator's legs must have and the floor's have not,
// whatever the coordinator is made of (docs/wire.md): prefill and decode carry
// the token ids that render has found, and each leg carries the client's headers,
// the request's id, and has a time-out of its own. A relay with the contract
// still looks at nothing but where those ids begin and end.

const requestIDHeader = "X-Request-Id"

// legTimeout is that of each leg; no backend of a measurement takes so long.
const legTimeout = time.Minute

var errNotRendered = errors.New("the answer of render has no token ids")

// identify gives a request an id, if its client has not.
func identify(in *http.Request) {
	if in.Header.Get(requestIDHeader) == "" {
		in.Header.Set(requestIDHeader, rand.Text())
	}
}

// keep sends a leg as the contract has it.
func (x *exchange) keep(out *http.Request) (*http.Response, error) {
	for name, values := range x.in.Header {
		switch name {
		case "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Epp-Profile":
		default:
			out.Header[name] = values
		}
	}
	out.Header.Set("X-Coordinator-Hop", "1")
	ctx, cancel := context.WithTimeout(out.Context(), legTimeout)
	answer, err := x.transport.RoundTrip(out.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = bounded{answer.Body, cancel}
	return answer, nil
}

// bounded is an answer's body whose time-out ends with it.
type bounded struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b bounded) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// rendered has the body rendered, and puts the token ids in front of it, as the
// legs of a chat carry them.
func (x *exchange) rendered(ctx context.Context) error {
	answer, err := x.call(ctx, x.renderPath, "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text := bytes.NewBuffer(make([]byte, 0, max(0, answer.ContentLength)+bytes.MinRead))
	if _, err := text.ReadFrom(answer.Body); err != nil {
		return err
	}
	_, ids, found := bytes.Cut(text.Bytes(), []byte(`"token_ids":[`))
	end := bytes.IndexByte(ids, ']')
	rest, isObject := bytes.CutPrefix(x.body, []byte("{"))
	if !found || end < 0 || !isObject {
		return errNotRendered
	}
	x.body = slices.Concat([]byte(`{"tokens":{"token_ids":[`), ids[:end], []byte(`]},`), rest)
	return nil
}
