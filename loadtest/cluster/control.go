package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"
)

// controlPrefix is where a cluster in a process of its own is steered:
//
//	GET    /_cluster/state                     the State
//	GET    /_cluster/legs?request_id=…         recorded legs, "body" as text or "body_base64"
//	POST   /_cluster/faults                    a Fault, "delay" as in "50ms"; answers {"id"}
//	DELETE /_cluster/faults[/{id}]             one, or all
//	POST   /_cluster/gates                     a Gate; answers {"id"}
//	GET    /_cluster/gates/{id}                the gate, how many wait, whether it is released
//	POST   /_cluster/gates/{id}/release        for good; with ?one=true one leg only
//	DELETE /_cluster/gates/{id}                releases and forgets it
//	POST   /_cluster/cached                    {"path","body"} of a request whose prompt is cached,
//	                                           or {"all"}: true for all prompts, false for none
//	POST   /_cluster/reset                     see Cluster.Reset
//
// Unknown fields are refused. Nothing of it is recorded as a leg.
const controlPrefix = "/_cluster/"

func (c *Cluster) controlRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_cluster/state", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, encode(c.State()))
	})
	mux.HandleFunc("GET /_cluster/legs", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, encode(legsForControl(c.Legs(r.URL.Query().Get("request_id")))))
	})
	mux.HandleFunc("POST /_cluster/faults", c.controlAddFault)
	mux.HandleFunc("DELETE /_cluster/faults", func(w http.ResponseWriter, _ *http.Request) {
		c.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_cluster/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if !c.RemoveFault(r.PathValue("id")) {
			reply(w, http.StatusNotFound, detail("no such fault, or it is spent"))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_cluster/gates", c.controlHold)
	mux.HandleFunc("GET /_cluster/gates/{id}", c.withGate(func(w http.ResponseWriter, _ *http.Request, h *Held) {
		reply(w, http.StatusOK, encode(h.status()))
	}))
	mux.HandleFunc("POST /_cluster/gates/{id}/release", c.withGate(controlRelease))
	mux.HandleFunc("DELETE /_cluster/gates/{id}", c.withGate(func(w http.ResponseWriter, _ *http.Request, h *Held) {
		h.Remove()
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("POST /_cluster/cached", c.controlCache)
	mux.HandleFunc("POST /_cluster/reset", func(w http.ResponseWriter, _ *http.Request) {
		c.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// controlID is the answer to what was put up.
type controlID struct {
	ID string `json:"id"`
}

// controlFault is a Fault as it is written in JSON.
type controlFault struct {
	Fault
	Delay string `json:"delay"`
}

func (c *Cluster) controlAddFault(w http.ResponseWriter, r *http.Request) {
	var body controlFault
	err := readStrictly(r.Body, &body)
	if err == nil && body.Delay != "" {
		body.Fault.Delay, err = time.ParseDuration(body.Delay)
	}
	id := ""
	if err == nil {
		id, err = c.addFault(body.Fault)
	}
	if err != nil {
		reply(w, http.StatusBadRequest, detail(err.Error()))
		return
	}
	reply(w, http.StatusCreated, encode(controlID{id}))
}

func (c *Cluster) controlHold(w http.ResponseWriter, r *http.Request) {
	var gate Gate
	var held *Held
	err := readStrictly(r.Body, &gate)
	if err == nil {
		held, err = c.hold(gate)
	}
	if err != nil {
		reply(w, http.StatusBadRequest, detail(err.Error()))
		return
	}
	reply(w, http.StatusCreated, encode(controlID{held.id}))
}

func controlRelease(w http.ResponseWriter, r *http.Request, h *Held) {
	if r.URL.Query().Get("one") == "true" {
		h.ReleaseOne()
	} else {
		h.Release()
	}
	w.WriteHeader(http.StatusNoContent)
}

func (c *Cluster) controlCache(w http.ResponseWriter, r *http.Request) {
	var body struct {
		All        *bool
		Path, Body string
	}
	err := readStrictly(r.Body, &body)
	switch {
	case err != nil:
	case body.All != nil:
		c.MarkCached(*body.All)
	default:
		err = c.CachePrompt(body.Path, body.Body)
	}
	if err != nil {
		reply(w, http.StatusBadRequest, detail(err.Error()))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// withGate looks the gate of the path up.
func (c *Cluster) withGate(next func(http.ResponseWriter, *http.Request, *Held)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		h := c.gateByID[r.PathValue("id")]
		c.mu.Unlock()
		if h == nil {
			reply(w, http.StatusNotFound, detail("no such gate"))
			return
		}
		next(w, r, h)
	}
}

// gateStatus is what the control route tells of a gate.
type gateStatus struct {
	ID       string `json:"id"`
	Gate     Gate   `json:"gate"`
	Waiting  int    `json:"waiting"`
	Reached  int    `json:"reached"` // legs that ever came to it
	Released bool   `json:"released"`
}

func (h *Held) status() gateStatus {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	return gateStatus{h.id, h.gate, len(h.waiting), h.held, h.open}
}

// controlLeg is a Leg as it is written in JSON.
type controlLeg struct {
	Leg
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"body_base64,omitempty"` // instead of Body if that is no text
}

func legsForControl(legs []Leg) []controlLeg {
	list := make([]controlLeg, len(legs))
	for i, leg := range legs {
		list[i].Leg = leg
		if utf8.Valid(leg.Body) {
			list[i].Body = string(leg.Body)
		} else {
			list[i].BodyBase64 = leg.Body
		}
	}
	return list
}

// readStrictly decodes one JSON value with no unknown fields.
func readStrictly(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("something follows the object")
	}
	return nil
}
