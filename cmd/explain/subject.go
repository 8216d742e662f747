package explain

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/url"
	"strings"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Types of steps.
const (
	stepAsync       = "async-broker"
	stepMedia       = "replace-media-urls"
	stepRender      = "render"
	stepConditional = "conditional-decode"
	stepEncode      = "encode"
	stepPrefill     = "prefill"
	stepDecode      = "decode"
	stepPair        = "prefill-decode"
)

// subject is a request, and what can be told of it by reading it.
type subject struct {
	Request
	path string
	// protocol is nil on a route that does not run through the pipeline; prompt is
	// nothing if the body cannot be read.
	protocol *wire.Protocol
	prompt   wire.Prompt
	// localKV is why the request cannot use the KV of another worker, or "".
	localKV string
	// removed are members of the body that no leg gets.
	removed []string
	// header is what is sent: the client's, and what a client's library would add.
	header http.Header
	// sent is the body with placeholders for the media that would be downloaded.
	sent []byte
	// pictures are these placeholders, as data URIs, and what they stand for.
	pictures map[string]string
	byURL    int // media that have one
	prompts  int // of a batch, else 0
}

func newSubject(cfg *conf.Config, req Request) (*subject, error) {
	at, err := url.Parse(req.Route)
	if err != nil || at.IsAbs() || at.Host != "" || !strings.HasPrefix(at.Path, "/") {
		return nil, fmt.Errorf("the route must be a path such as %s", wire.Chat.Path)
	}
	s := &subject{Request: req, path: at.Path, sent: req.Body, pictures: map[string]string{}}
	s.header = withDefaults(req.Header)
	for _, p := range wire.Protocols() {
		if p.Path == at.Path && (p != wire.Responses || hasStep(cfg, stepRender) && !hasStep(cfg, stepPair)) {
			s.protocol = p
		}
	}
	if s.protocol != nil && int64(len(req.Body)) <= cfg.Server.MaxRequestBytes() {
		s.read(hasStep(cfg, stepMedia), cfg.Pipeline.MaxBatchSize)
	}
	return s, nil
}

// withDefaults returns the headers that are sent for those of a client.
func withDefaults(client http.Header) http.Header {
	h := client.Clone()
	if h == nil {
		h = http.Header{}
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	if h.Get(wire.HeaderRequestID) == "" {
		h.Set(wire.HeaderRequestID, requestID)
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = []string{""} // net/http sends one of its own otherwise
	}
	return h
}

func hasStep(cfg *conf.Config, kind string) bool {
	for _, s := range cfg.Pipeline.Steps {
		if s.Type == kind {
			return true
		}
	}
	return false
}

// read finds out what the body says. What is wrong with it the coordinator finds.
func (s *subject) read(downloads bool, maxBatch int) {
	whole, err := wire.ParseBody(s.Body)
	if err != nil {
		return
	}
	if s.protocol == wire.Responses && wire.NeedsState(whole) != "" {
		s.protocol = nil
		return
	}
	body := wire.Sanitize(whole)
	s.removed = removed(s.Body, whole, body)
	singles, err := s.protocol.Singles(body, maxBatch)
	if err != nil {
		return
	}
	var prompt wire.Prompt
	if len(singles) > 0 {
		prompt, s.prompts = singles[0].Prompt, len(singles)
	} else if prompt, err = s.protocol.Prompt(body); err != nil {
		return
	}
	s.prompt, s.localKV = prompt, s.protocol.LocalKV(body)
	if downloads && prompt.Media.Len() > 0 {
		s.inline(whole)
	}
}

// removed names what sanitizing a body has taken out of it.
func removed(text []byte, before, after *wire.Body) (names []string) {
	seen := map[string]bool{}
	wire.EachMember(text, func(quoted, _ []byte) bool {
		name, ok := wire.Unquote(quoted)
		if !ok || seen[name] {
			return true
		}
		seen[name] = true
		switch was, is := before.Get(name), after.Get(name); {
		case is == nil:
			names = append(names, name)
		case !bytes.Equal(was, is):
			names = append(names, "transfer params in "+name)
		}
		return true
	})
	return names
}

// inline puts a placeholder in the place of each URL that would be downloaded:
// one for all that are the same, as they would be the same medium.
func (s *subject) inline(body *wire.Body) {
	m := s.prompt.Media
	uris, known := make([][]byte, m.Len()), map[string][]byte{}
	for i := range uris {
		if m.Format(i) != nil || wire.IsDataURI(m.URL(i)) {
			continue
		}
		s.byURL++
		text, _ := wire.Unquote(m.URL(i))
		asked := m.Modality(i).String() + " " + text
		if known[asked] == nil {
			uri := placeholder(m.Modality(i), len(known))
			known[asked], _ = json.Marshal(uri) // a string: it cannot fail
			s.pictures[uri] = fmt.Sprintf("(placeholder of %s, which is not fetched)", maskURL(text))
		}
		uris[i] = known[asked]
	}
	if s.byURL > 0 {
		src := s.protocol.Source(body, s.prompt, m.Inline(uris), wire.Tokens{})
		s.sent = s.protocol.RenderLeg(src).Append(nil)
	}
}

// placeholder is the n-th of many different media of a modality, as a data URI.
func placeholder(m wire.Modality, n int) string {
	switch m {
	case wire.Audio:
		return cluster.MediaURI(fmt.Sprint(n, ".wav"), 0)
	case wire.Video:
		return cluster.MediaURI(fmt.Sprint(n, ".mp4"), 0)
	}
	return picture(n)
}

// picture is the n-th of many different images of one pixel, as a data URI.
func picture(n int) string {
	one := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	one.SetNRGBA(0, 0, color.NRGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n), A: 255})
	var b bytes.Buffer
	_ = png.Encode(&b, one) // a pixel has no size that could be wrong, and a buffer takes all
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}
