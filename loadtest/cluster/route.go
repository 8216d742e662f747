package cluster

import (
	"net/http"
	"strings"
)

// renderSuffix makes a client path the one of its render route.
const renderSuffix = "/render"

// serve is the gateway: it sends each request where it belongs.
func (c *Cluster) serve(w http.ResponseWriter, r *http.Request) {
	if !c.enter() {
		reply(w, http.StatusServiceUnavailable, detail("cluster closed"))
		return
	}
	defer c.legs.Done()
	reused := countUse(r.Context())

	if strings.HasPrefix(r.URL.Path, controlPrefix) {
		c.control.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/v1/models" {
		if allow(w, r, http.MethodGet) {
			reply(w, http.StatusOK, c.models())
		}
		return
	}
	if strings.HasPrefix(r.URL.Path, originPrefix) {
		if allow(w, r, http.MethodGet) {
			c.arrive(Origin, nil, w, r, reused).serve()
		}
		return
	}
	if r.URL.Path == queryPath && c.options.KV == KVMooncake {
		if allow(w, r, http.MethodGet) {
			c.arrive(Query, nil, w, r, reused).serve()
		}
		return
	}
	path, isRender := strings.CutSuffix(r.URL.Path, renderSuffix)
	api := apiAt(path)
	if api == nil || isRender && (api.tokensIn || api.typed && c.options.NoResponsesRender) {
		reply(w, http.StatusNotFound, detail("Not Found"))
		return
	}
	if !allow(w, r, http.MethodPost) {
		return
	}
	name := Render
	if !isRender {
		name = c.worker(r.Header)
	}
	if c.pairs() && api.tokensIn {
		reply(w, http.StatusNotFound, detail("Not Found"))
		return
	}
	c.arrive(name, api, w, r, reused).serve()
}

// worker returns the leg that a request's profile stands for. A real gateway
// would route what has none back to the coordinator.
func (c *Cluster) worker(header http.Header) string {
	switch profile := header.Get(c.options.ProfileHeader); profile {
	case Prefill:
		if c.chooses() && header.Get("Prefer") == reserveEndpoint {
			return Reserve
		}
		return Prefill
	case Encode: // profiles are called like their legs
		return profile
	case Decode:
		if header.Get("Prefer") == ifAvailable {
			return Probe
		}
		return Decode
	}
	return Unknown
}

// allow answers 405 and returns false if the request has another method.
func allow(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	reply(w, http.StatusMethodNotAllowed, detail("Method Not Allowed"))
	return false
}

// reply answers what is not a leg.
func reply(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody is told that the client went
}

// models is vLLM's list of models.
func (c *Cluster) models() []byte {
	type model struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen int     `json:"max_model_len"`
	}
	return encode(struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", []model{{
		ID: c.options.Model, Object: "model", Created: created, OwnedBy: "vllm",
		Root: c.options.Model, MaxModelLen: maxModelLen,
	}}})
}
