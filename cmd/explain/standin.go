package explain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Hosts of the two upstreams. The names are reserved: they exist nowhere.
const (
	gatewayHost = "gateway.invalid"
	renderHost  = "render.invalid"
)

// standIn is the gateway and the render service: it answers whatever it is asked
// with as little as will do, and remembers what it was asked. It does not judge:
// a worker may refuse what it takes.
type standIn struct {
	pipe          *cluster.PipeListener
	server        *http.Server
	serving       sync.WaitGroup
	profileHeader string
	worker        string // header that names a prefill worker, or ""

	mu   sync.Mutex
	seen []seen
}

// seen is a leg as it came.
type seen struct {
	host, method, path, query string
	header                    http.Header
	body                      []byte
	// profile is that of a leg to the gateway; image is the number of the
	// medium that an encode leg is about.
	profile string
	image   int
}

func startStandIn(profileHeader, worker string) *standIn {
	s := &standIn{pipe: cluster.NewPipeListener(), profileHeader: profileHeader, worker: worker}
	s.server = &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	s.serving.Go(func() { _ = s.server.Serve(s.pipe) }) // ends with ErrServerClosed
	return s
}

// dial connects to the stand-in, and to nothing else.
func (s *standIn) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if host, _, _ := net.SplitHostPort(address); host != gatewayHost && host != renderHost {
		return nil, fmt.Errorf("explain calls nothing, but %s was dialled", address)
	}
	return s.pipe.DialContext(ctx, network, address)
}

// Engine makes up the id of an engine: no worker is asked.
func (s *standIn) Engine(context.Context, string, bool) (string, error) { return engineID, nil }

func (s *standIn) close() {
	_ = s.server.Close() // its only error is that of closing the listener
	s.serving.Wait()
}

// legs returns what was asked. Those of encode come in any order: they are put in
// that of their media; and those of a pair, of which decode's is put last.
func (s *standIn) legs() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	legs := slices.Clone(s.seen)
	for lo := range legs {
		hi := lo
		for hi < len(legs) && legs[hi].profile == stepEncode {
			hi++
		}
		slices.SortStableFunc(legs[lo:hi], func(a, b seen) int { return a.image - b.image })
	}
	if last := len(legs) - 1; last > 0 && legs[last].profile == stepPrefill && legs[last-1].profile == stepDecode {
		legs[last], legs[last-1] = legs[last-1], legs[last] // sent at once
	}
	return legs
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	leg := seen{host: r.Host, method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, header: r.Header.Clone(), body: body,
		profile: r.Header.Get(s.profileHeader)}
	if leg.profile == stepEncode {
		leg.image = hashNumber(body)
	}
	s.mu.Lock()
	s.seen = append(s.seen, leg)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if s.worker != "" && leg.profile != "" {
		w.Header().Set(s.worker, prefillHost+":1")
	}
	if leg.profile == stepDecode && r.Header.Get("Prefer") != "" {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if leg.profile == stepDecode && leg.streams() {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: [DONE]\n\n")
		return
	}
	w.Write(leg.answer())
}

// Placeholders of what the upstreams would answer. They are as few as there can
// be, so that whatever limit they are over the real ones are over too.
const (
	firstID     = 9990000 // of the prompt; those of media follow
	hashPrefix  = "placeholder-hash-"
	engineID    = "placeholder-engine"
	prefillHost = "placeholder-prefill-host"
	tensorText  = "placeholder-tensor-"
	encodeHost  = "placeholder-encode-host"
	descriptor  = `{"peer_host":"` + encodeHost + `","peer_port":1,"size_bytes":1,"nixl_agent_metadata_b64":"placeholder-metadata"}`
	handoff     = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":"` + engineID + `","remote_block_ids":[1],"remote_host":"` + prefillHost + `","remote_port":1}`
	// ranks is in a prefill leg of kv-moriio, pushes in an encode leg of ec-mooncake.
	ranks       = `"remote_dp_size"`
	moriio      = `,"remote_handshake_port":1,"remote_notify_port":1,"transfer_id":"placeholder"}`
	pushes      = `"ec_items"`
	pushed      = `{"ec_items":[{"placeholder-metadata":"` + encodeHost + `"}]}`
	emptyAnswer = `{"id":"placeholder","object":"placeholder","choices":[]}`
)

func (l *seen) answer() []byte {
	if l.host == renderHost {
		return l.rendered()
	}
	switch l.profile {
	case stepEncode:
		if bytes.Contains(l.body, []byte(pushes)) {
			return []byte(`{"choices":[],"ec_transfer_params":` + pushed + `}`)
		}
		return fmt.Appendf(nil, `{"choices":[],"ec_transfer_params":{"%s%d":%s}}`, hashPrefix, l.image, descriptor)
	case stepPrefill:
		given := handoff
		if bytes.Contains(l.body, []byte(ranks)) {
			given = strings.TrimSuffix(handoff, "}") + moriio
		}
		return []byte(`{"choices":[],"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":0}},"kv_transfer_params":` + given + `}`)
	}
	return []byte(emptyAnswer)
}

// rendered is a prompt of one token, and one more for each medium. Equal media
// have equal hashes.
func (l *seen) rendered() []byte {
	media := mediaOf(l.path, l.body)
	var ids []string
	var hashes, places, tensors [wire.Modalities][]string
	ids = append(ids, fmt.Sprint(firstID))
	known := map[string]int{}
	for i := range media.Len() {
		m, what := media.Modality(i), media.Modality(i).String()+string(media.URL(i))
		if known[what] == 0 {
			known[what] = len(known) + 1
		}
		n := known[what]
		ids = append(ids, fmt.Sprint(firstID+n))
		hashes[m] = append(hashes[m], fmt.Sprintf(`"%s%d"`, hashPrefix, n))
		places[m] = append(places[m], fmt.Sprintf(`{"offset":%d,"length":1}`, i+1))
		tensors[m] = append(tensors[m], fmt.Sprintf(`"%s%d"`, tensorText, n))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"token_ids":[%s]`, strings.Join(ids, ","))
	if media.Len() > 0 {
		fmt.Fprintf(&b, `,"features":{"mm_hashes":%s,"mm_placeholders":%s,"kwargs_data":%s}`, byModality(hashes), byModality(places), byModality(tensors))
	}
	b.WriteByte('}')
	if l.path == wire.Completions.RenderPath {
		return append(append([]byte("["), b.Bytes()...), ']')
	}
	return b.Bytes()
}

// byModality is a map of features, of the modalities that there are.
func byModality(items [wire.Modalities][]string) string {
	var all []string
	for m, of := range items {
		if len(of) > 0 {
			all = append(all, fmt.Sprintf(`"%s":[%s]`, wire.Modality(m), strings.Join(of, ",")))
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

// mediaOf returns the media in a render leg, nil if there are none.
func mediaOf(path string, body []byte) *wire.Media {
	parsed, err := wire.ParseBody(body)
	at := slices.IndexFunc(wire.Protocols(), func(p *wire.Protocol) bool { return p.RenderPath == path })
	if err != nil || at < 0 {
		return nil
	}
	prompt, err := wire.Protocols()[at].Prompt(parsed)
	if err != nil {
		return nil
	}
	return prompt.Media
}

var hashInBody = regexp.MustCompile(hashPrefix + `(\d+)`)

// hashNumber is the number of the medium that a leg is about, or 0.
func hashNumber(body []byte) (n int) {
	if m := hashInBody.FindSubmatch(body); m != nil {
		n, _ = strconv.Atoi(string(m[1])) // digits
	}
	return n
}
