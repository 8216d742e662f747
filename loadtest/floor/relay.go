package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// profileHeader tells the backend which leg it is.
const profileHeader = "EPP-Profile"

// relay is the floor.
type relay struct {
	up        string
	contract  bool  // see contract.go
	crew      *crew // who makes the legs; nil: whoever serves the request
	transport *http.Transport
	buffers   sync.Pool // of *[]byte
	mux       http.ServeMux
}

// relaySettings say what is more than the floor.
type relaySettings struct{ contract, actors bool }

func newRelay(up string, s relaySettings) *relay {
	const connections = 16 << 10
	r := &relay{up: up, contract: s.contract,
		transport: &http.Transport{DisableCompression: true, MaxIdleConns: connections, MaxIdleConnsPerHost: connections}}
	if s.actors {
		r.crew = newCrew()
	}
	r.buffers.New = func() any { b := make([]byte, 32<<10); return &b }
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		r.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, in *http.Request) { r.serve(w, in, path, path+"/render") })
	}
	const generate = "/inference/v1/generate"
	r.mux.HandleFunc("POST "+generate, func(w http.ResponseWriter, in *http.Request) { r.serve(w, in, generate, "") })
	return r
}

// ServeHTTP implements http.Handler.
func (r *relay) ServeHTTP(w http.ResponseWriter, in *http.Request) { r.mux.ServeHTTP(w, in) }

// close may be called when no request is left.
func (r *relay) close() {
	if r.crew != nil {
		r.crew.close()
	}
	r.transport.CloseIdleConnections()
}

// exchange is one request on its way. It belongs to whoever makes its next leg.
type exchange struct {
	*relay
	w                http.ResponseWriter
	in               *http.Request
	path, renderPath string // renderPath of "" is a leg that there is not
	body             []byte // of the next leg
	buf              []byte
	begun            bool // its answer has
}

func (r *relay) serve(w http.ResponseWriter, in *http.Request, path, renderPath string) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.contract {
		identify(in)
	}
	buf := r.buffers.Get().(*[]byte)
	defer r.buffers.Put(buf)
	x := &exchange{relay: r, w: w, in: in, path: path, renderPath: renderPath, body: body, buf: *buf}
	if r.crew != nil {
		err = r.crew.run(in.Context(), x)
	} else {
		err = x.run(in.Context())
	}
	switch {
	case err == nil:
	case x.begun: // what breaks off is broken off
		panic(http.ErrAbortHandler)
	default:
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// run makes the legs, one after the other.
func (x *exchange) run(ctx context.Context) error {
	for _, leg := range []func(*exchange, context.Context) error{(*exchange).render, (*exchange).prefill, (*exchange).decode} {
		if err := leg(x, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) render(ctx context.Context) error {
	switch {
	case x.renderPath == "":
		return nil
	case x.contract:
		return x.rendered(ctx)
	}
	return x.leg(ctx, x.renderPath, "")
}

func (x *exchange) prefill(ctx context.Context) error { return x.leg(ctx, x.path, "prefill") }

// decode passes its answer on as it comes.
func (x *exchange) decode(ctx context.Context) error {
	answer, err := x.call(ctx, x.path, "decode")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	x.begun = true
	x.w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	x.w.WriteHeader(answer.StatusCode)
	flusher := x.w.(http.Flusher)
	for {
		n, err := answer.Body.Read(x.buf)
		if n > 0 {
			if _, err := x.w.Write(x.buf[:n]); err != nil {
				return err
			}
			flusher.Flush()
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// leg makes a call whose answer is read and thrown away.
func (x *exchange) leg(ctx context.Context, path, profile string) error {
	answer, err := x.call(ctx, path, profile)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for err == nil {
		_, err = answer.Body.Read(x.buf)
	}
	if err == io.EOF {
		return nil
	}
	return err
}

func (x *exchange) call(ctx context.Context, path, profile string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, x.up+path, bytes.NewReader(x.body))
	if err != nil {
		return nil, err
	}
	out.Header.Set("Content-Type", "application/json")
	if profile != "" {
		out.Header.Set(profileHeader, profile)
	}
	if x.contract {
		return x.keep(out)
	}
	return x.transport.RoundTrip(out)
}
