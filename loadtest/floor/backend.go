package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// backendSettings say what a backend answers.
type backendSettings struct {
	tokens      int // ids of each prompt
	tensorBytes int // of an image's tensor
	eventBytes  int // text in an event
	interval    time.Duration
}

// backend plays the render service and the workers. Its answers are prepared
// bytes: of render's there is one for each number of images.
type backend struct {
	settings                backendSettings
	ids, tensor             string
	event, answer           []byte
	encoded, prefilled      []byte
	buffers                 sync.Pool // of *bytes.Buffer
	mu                      sync.Mutex
	rendered, renderedLists map[int][]byte // by number of images
	mux                     http.ServeMux
}

func newBackend(s backendSettings) *backend {
	text := strings.Repeat("x", s.eventBytes)
	b := &backend{settings: s,
		ids:    strings.TrimSuffix(strings.Repeat("15496,", s.tokens), ","),
		tensor: strings.Repeat("Bwc3", s.tensorBytes/4),
		event: []byte(`data: {"id":"d","object":"chat.completion.chunk","created":1,"model":"demo-model",` +
			`"choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}` + "\n\n"),
		answer: []byte(`{"id":"d","object":"chat.completion","created":1,"model":"demo-model",` +
			`"choices":[{"index":0,"message":{"role":"assistant","content":"` + text + `"},"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":512,"completion_tokens":64,"total_tokens":576}}`),
		encoded: []byte(`{"id":"e","choices":[],"ec_transfer_params":{"h":{"peer_host":"10.0.0.1","peer_port":5501,` +
			`"size_bytes":2359296,"nixl_agent_metadata_b64":"TklYTA=="}}}`),
		prefilled: []byte(`{"id":"p","choices":[],"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,` +
			`"remote_engine_id":"engine-1","remote_block_ids":[[1,2,3,4]],"remote_host":"10.0.0.2","remote_port":5600,"tp_size":1}}`),
		rendered: map[int][]byte{}, renderedLists: map[int][]byte{},
	}
	b.buffers.New = func() any { return new(bytes.Buffer) }
	b.mux.HandleFunc("POST /v1/chat/completions/render", func(w http.ResponseWriter, r *http.Request) { b.render(w, r, false) })
	b.mux.HandleFunc("POST /v1/completions/render", func(w http.ResponseWriter, r *http.Request) { b.render(w, r, true) })
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/inference/v1/generate"} {
		b.mux.HandleFunc("POST "+path, b.work)
	}
	return b
}

// ServeHTTP implements http.Handler.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// read reads a body; give it back by b.buffers.
func (b *backend) read(r *http.Request) (*bytes.Buffer, error) {
	buf := b.buffers.Get().(*bytes.Buffer)
	buf.Reset()
	_, err := buf.ReadFrom(r.Body)
	return buf, err
}

func (b *backend) render(w http.ResponseWriter, r *http.Request, list bool) {
	body, err := b.read(r)
	defer b.buffers.Put(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, b.rendering(bytes.Count(body.Bytes(), []byte(`"image_url":{`)), list))
}

// rendering returns the answer of render to a request with so many images.
func (b *backend) rendering(images int, list bool) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	made := b.rendered
	if list {
		made = b.renderedLists
	}
	if made[images] == nil {
		made[images] = b.makeRendering(images, list)
	}
	return made[images]
}

func (b *backend) makeRendering(images int, list bool) []byte {
	var hashes, places, tensors []string
	for i := range images {
		apart := max(1, b.settings.tokens/images)
		hashes = append(hashes, fmt.Sprintf(`"%064d"`, i))
		places = append(places, fmt.Sprintf(`{"offset":%d,"length":%d}`, i*apart, min(10, apart)))
		tensors = append(tensors, `"`+b.tensor+`"`)
	}
	features := "null"
	if images > 0 {
		all := func(items []string) string { return `{"image":[` + strings.Join(items, ",") + `]}` }
		features = `{"mm_hashes":` + all(hashes) + `,"mm_placeholders":` + all(places) + `,"kwargs_data":` + all(tensors) + `}`
	}
	answer := `{"request_id":"r","token_ids":[` + b.ids + `],"features":` + features + `}`
	if list {
		answer = "[" + answer + "]"
	}
	return []byte(answer)
}

// work is a leg to a worker.
func (b *backend) work(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get(profileHeader) {
	case "encode":
		io.Copy(io.Discard, r.Body)
		reply(w, b.encoded)
	case "prefill":
		io.Copy(io.Discard, r.Body)
		reply(w, b.prefilled)
	case "decode":
		b.decode(w, r)
	default:
		http.Error(w, "no profile in "+profileHeader, http.StatusNotFound)
	}
}

func (b *backend) decode(w http.ResponseWriter, r *http.Request) {
	body, err := b.read(r)
	streamed := bytes.Contains(body.Bytes(), []byte(`"stream":true`))
	events := maxTokens(body.Bytes())
	b.buffers.Put(body)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case streamed:
		b.stream(w, r, events)
	default:
		reply(w, b.answer)
	}
}

// stream writes events, each by itself.
func (b *backend) stream(w http.ResponseWriter, r *http.Request, events int) {
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := w.(http.Flusher)
	var pause <-chan time.Time
	if b.settings.interval > 0 {
		ticker := time.NewTicker(b.settings.interval)
		defer ticker.Stop()
		pause = ticker.C
	}
	for range events {
		if _, err := w.Write(b.event); err != nil {
			return
		}
		flusher.Flush()
		if pause == nil {
			continue
		}
		select {
		case <-pause:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	io.WriteString(w, "data: [DONE]\n\n")
}

// maxTokens is how many a body asks for, by the first member of that name; 64 if
// it does not say.
func maxTokens(body []byte) int {
	_, after, found := bytes.Cut(body, []byte(`"max_tokens":`))
	if end := bytes.IndexAny(after, ",}"); found && end > 0 {
		if n, err := strconv.Atoi(string(after[:end])); err == nil {
			return n
		}
	}
	return 64
}

func reply(w http.ResponseWriter, answer []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer)
}
