package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/budget"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Requests that wait for an hour are many at a time. A goroutine's stack grows with
// what is called on it, and does not shrink below a handler that waits: reading a
// request and starting it would leave each with twice the stack that it waits on.
// So both are done on another, which is gone afterwards.

// elsewhere runs f on a goroutine of its own, and waits for it. A panic in it is the
// caller's.
func elsewhere(f func()) {
	var done sync.WaitGroup
	var cause any
	done.Go(func() {
		defer func() { cause = recover() }()
		f()
	})
	done.Wait()
	if cause != nil {
		panic(cause)
	}
}

// waits reports whether a request on the route of a protocol may wait by terms of
// its own.
func (s *desk) waits(p *wire.Protocol, h http.Header) bool {
	return s.Waits != nil && p.MayWait() && s.Waits(h)
}

// opened opens a request, see open.
func (s *desk) opened(w http.ResponseWriter, r *http.Request, p *wire.Protocol, accept accepter, memory *budget.Account) *answering {
	if !s.waits(p, r.Header) {
		return s.open(w, r, p, accept, memory)
	}
	return s.openElsewhere(w, r, p, accept, memory)
}

//go:noinline
func (s *desk) openElsewhere(w http.ResponseWriter, r *http.Request, p *wire.Protocol, accept accepter, memory *budget.Account) (a *answering) {
	elsewhere(func() {
		a = s.open(w, r, p, accept, memory)
		a.long = true
		if a.fault == nil { // its answer goes out in one piece
			a.req.Out = phases.NewSmallResponse()
		}
	})
	return a
}

// start hands the request to the engine.
func (a *answering) start(ctx context.Context, engine Engine) error {
	if !a.long {
		return engine.Start(ctx, a.req)
	}
	return startElsewhere(ctx, engine, a.req, a.rc)
}

//go:noinline
func startElsewhere(ctx context.Context, engine Engine, req *phases.Request, rc *http.ResponseController) (err error) {
	elsewhere(func() {
		if err = engine.Start(ctx, req); err == nil {
			rc.SetWriteDeadline(time.Time{}) // HTTP/2 would end the stream then; set again for what is written
		}
	})
	return err
}
