// Package explain says what a coordinator would do with a request, and why. It
// calls nothing outside of the process: a real coordinator is built and handed
// the request, but all of its upstreams are a stand-in in memory that records the
// legs. So what it shows is what the code does, and not what somebody has written
// about it; what only the upstreams could know are placeholders, and named as such.
package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Request is what a client would send, by POST.
type Request struct {
	// Route is the path, and the query if there is one.
	Route string
	// Header are the client's headers, but for those that are of HTTP itself.
	Header http.Header
	Body   []byte
}

// requestID is the id of a request that has none: one that is made up would be
// another each time.
const requestID = "explained-request"

// Explain has a coordinator of that configuration serve a request, calling
// nothing, and reports what it did. An error means that it could not be tried;
// that a request is refused is none.
//
// Files and variables that the configuration names (certificates, credentials)
// are not read. Of the environment, which lookup finds, only the ports of workers are,
// for they are in the legs.
func Explain(ctx context.Context, cfg *conf.Config, lookup func(name string) (string, bool), req Request) (*Report, error) {
	s, err := newSubject(cfg, req)
	if err != nil {
		return nil, err
	}
	quiet, err := newQuiet(cfg, s)
	if err != nil {
		return nil, err
	}
	upstreams := startStandIn(cfg.Gateway.ProfileHeader, quiet.worker)
	defer upstreams.close()
	var waiting queue
	c, err := assembly.New(quiet.config, assembly.Options{Version: "explain", Dial: upstreams.dial, OpenBroker: waiting.open, Engines: upstreams,
		LookupEnv: func(name string) (value string, ok bool) {
			if phases.IsBootstrapPort(name) {
				value, ok = lookup(name)
			}
			return value, ok
		}})
	if err != nil {
		return nil, fmt.Errorf("build a coordinator: %w", err)
	}
	defer c.Close()
	finished := make(chan server.Record, 1)
	c.Server.Finished = func(r server.Record) { finished <- r }
	answer, err := ask(ctx, c.Server, s)
	if err != nil {
		return nil, fmt.Errorf("hand the request to a coordinator: %w", err)
	}
	o := observed{subject: s, quiet: quiet, queue: &waiting, answer: answer, legs: upstreams.legs(), stages: append(c.Stages(), passthrough(cfg))}
	select {
	case o.record = <-finished:
		o.served = true
		if o.record.Protocol == wire.Passthrough.Name { // though the pipeline may have the route
			o.protocol = nil
		}
	default: // it was refused before it was a request of any protocol
	}
	return o.report(), nil
}

// passthrough is the one stage of what does not run through the pipeline.
func passthrough(cfg *conf.Config) assembly.Stage {
	pool := cfg.Actors.Pools.Passthrough
	return assembly.Stage{Step: "passthrough", Pool: "passthrough", AtWork: pool.Size, Waiting: pool.Queue}
}

// answer is what the client would have.
type answer struct {
	status int
	body   []byte
}

// patience is how long the coordinator may take, which has nothing to wait for.
const patience = time.Minute

// ask serves one request over a pipe, and returns when it has ended on the
// server's side too.
func ask(ctx context.Context, s *server.Server, q *subject) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pipe := cluster.NewPipeListener()
	served := make(chan error, 1)
	go func() { served <- s.Serve(pipe) }()
	client := &http.Transport{DialContext: pipe.DialContext, DisableCompression: true}
	a, err = roundTrip(ctx, client, q)
	if stopped := s.Shutdown(ctx); err == nil { // before the client leaves: it may have its answer, and a leg still be under way
		err = stopped
	}
	client.CloseIdleConnections()
	if ended := <-served; err == nil {
		err = ended
	}
	return a, err
}

func roundTrip(ctx context.Context, client http.RoundTripper, q *subject) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://coordinator"+q.Route, bytes.NewReader(q.sent))
	if err != nil {
		return a, fmt.Errorf("the route: %w", err)
	}
	req.Header = q.header
	resp, err := client.RoundTrip(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.status = resp.StatusCode
	a.body, err = io.ReadAll(resp.Body)
	return a, err
}

// refusal reads the coordinator's own error object.
func (a answer) refusal() *Refusal {
	var o struct {
		Error struct{ Message, Type, Code string }
	}
	r := &Refusal{Status: a.status}
	if json.Unmarshal(a.body, &o) == nil {
		r.Type, r.Code, r.Message = o.Error.Type, o.Error.Code, o.Error.Message
	}
	return r
}
