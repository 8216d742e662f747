// Package engines asks the bootstrap servers of prefill workers what their engines
// are called. It is the one call that goes to a worker and not to the gateway: a
// Mooncake decode worker must be told the id, and nobody else tells it.
//
// Whom it asks comes from the configuration or from the gateway, never from a
// client. It goes through no proxy, follows no redirect, and reads little.
package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

const (
	// timeout of a question, dialling included.
	timeout = 2 * time.Second
	// kept is how long an answer is used again. An engine that has restarted has
	// another id.
	kept = 5 * time.Second
	// maxAnswer is how large an answer may be, maxKept how many are kept.
	maxAnswer = 64 << 10
	maxKept   = 1024
	// path is where a bootstrap server lists its engines: {"0":{"engine_id":…},…} by
	// their data-parallel ranks.
	path = "/query"
)

// Directory knows the ids of engines. It may be used by many goroutines.
type Directory struct {
	client *http.Client

	mu    sync.Mutex
	known map[string]answer // by host:port
}

type answer struct {
	id    string
	until time.Time
}

// New makes a directory. dial makes connections; nil dials TCP.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Directory {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	bounded := func(ctx context.Context, network, address string) (net.Conn, error) { // net/http dials on when its request has gone
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, address)
	}
	return &Directory{known: map[string]answer{}, client: &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{DialContext: bounded, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Engine returns the id of the engine whose bootstrap server is at address,
// host:port. An answer of the last seconds is used again unless anew is set: for a
// request that has failed with it. It blocks while it asks. The error is a fault of
// kind UpstreamFailed or UpstreamTimeout, and holds nothing of the answer.
func (d *Directory) Engine(ctx context.Context, address string, anew bool) (string, error) {
	if id, ok := d.recall(address); ok && !anew {
		return id, nil
	}
	id, err := d.ask(ctx, address)
	if err == nil {
		d.keep(address, id)
		return id, nil
	}
	kind := wire.UpstreamFailed
	if timedOut := (net.Error)(nil); errors.As(err, &timedOut) && timedOut.Timeout() {
		kind = wire.UpstreamTimeout
	}
	return "", wire.Faultf(kind, "the engine of the prefill worker is not known").Because(
		fmt.Errorf("its bootstrap server at %s: %w", address, err))
}

// errUnreadable is an answer that net/http does not understand. Its own error may quote
// it.
var errUnreadable = errors.New("its answer is no HTTP")

// ownError is an error of net/http's without what the server has said.
func ownError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op
	}
	if late := (net.Error)(nil); errors.As(err, &late) && late.Timeout() {
		return errLate
	}
	return errUnreadable
}

// errLate is a time-out.
var errLate net.Error = lateError{}

type lateError struct{}

func (lateError) Error() string   { return "it did not answer in time" }
func (lateError) Timeout() bool   { return true }
func (lateError) Temporary() bool { return true }

func (d *Directory) recall(address string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.known[address]
	return a.id, ok && time.Now().Before(a.until)
}

func (d *Directory) keep(address, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= maxKept {
		clear(d.known) // fleets are smaller: it is no cache for the ages
	}
	d.known[address] = answer{id, time.Now().Add(kept)}
}

func (d *Directory) ask(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return "", ownError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answered %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return "", ownError(ctx, err)
	}
	if len(body) > maxAnswer {
		return "", errors.New("its answer is too large")
	}
	return read(body)
}

// read reads the answer of a bootstrap server. Which of several data-parallel ranks
// will compute a prompt is not known here, so there must be one.
func read(body []byte) (string, error) {
	if err := wire.Valid(body); err != nil {
		return "", errors.New("its answer is no JSON")
	}
	id, ranks := "", 0
	wire.EachMember(body, func(_, engine []byte) bool {
		ranks++
		id, _ = wire.Unquote(wire.Lookup(engine, "engine_id"))
		return true
	})
	switch {
	case ranks > 1:
		return "", fmt.Errorf("it has %d data-parallel ranks; kv-mooncake is for workers with one", ranks)
	case id == "" || len(id) > maxID:
		return "", errors.New("its answer has no engine_id")
	}
	return id, nil
}

// maxID bounds an id, which is a UUID by default.
const maxID = 256
