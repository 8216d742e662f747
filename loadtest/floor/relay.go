package main

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// profileHeader tells the backend which leg it is.
const profileHeader = "EPP-Profile"

// relay is the floor.
type relay struct {
	up        string
	contract  bool // see contract.go
	transport *http.Transport
	buffers   sync.Pool // of *[]byte
	mux       http.ServeMux
}

func newRelay(up string, contract bool) *relay {
	const connections = 16 << 10
	r := &relay{up: up, contract: contract, transport: &http.Transport{DisableCompression: true, MaxIdleConns: connections, MaxIdleConnsPerHost: connections}}
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

func (r *relay) close() { r.transport.CloseIdleConnections() }

// serve makes the legs of a request. A path of "" is a leg that there is not.
func (r *relay) serve(w http.ResponseWriter, in *http.Request, path, renderPath string) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	buf := r.buffers.Get().(*[]byte)
	defer r.buffers.Put(buf)
	if r.contract {
		identify(in)
	}
	if renderPath != "" {
		body, err = r.render(in, renderPath, body, *buf)
	}
	if err == nil {
		err = r.leg(in, path, "prefill", body, *buf)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer, err := r.call(in, path, "decode", body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	copyAnswer(w, answer, *buf)
}

func (r *relay) call(in *http.Request, path, profile string, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(in.Context(), http.MethodPost, r.up+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header.Set("Content-Type", "application/json")
	if profile != "" {
		out.Header.Set(profileHeader, profile)
	}
	if r.contract {
		return r.keep(in, out)
	}
	return r.transport.RoundTrip(out)
}

// render makes the first leg, and returns the body of those after it.
func (r *relay) render(in *http.Request, path string, body, buf []byte) ([]byte, error) {
	if r.contract {
		return r.rendered(in, path, body)
	}
	return body, r.leg(in, path, "", body, buf)
}

// leg makes a call whose answer is read and thrown away.
func (r *relay) leg(in *http.Request, path, profile string, body, buf []byte) error {
	answer, err := r.call(in, path, profile, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for err == nil {
		_, err = answer.Body.Read(buf)
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// copyAnswer passes on what has come as it comes. An answer that breaks off is
// broken off.
func copyAnswer(w http.ResponseWriter, answer *http.Response, buf []byte) {
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	flusher := w.(http.Flusher)
	for {
		n, err := answer.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			flusher.Flush()
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}
