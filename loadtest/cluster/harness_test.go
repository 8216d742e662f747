package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
	generatePath    = "/inference/v1/generate"

	nixlAsk = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
)

// rig is a started cluster and a client of it.
type rig struct {
	*Cluster
	t      *testing.T
	client *http.Client
}

func start(t *testing.T, options Options) *rig {
	t.Helper()
	c := New(options)
	if err := c.Start(":0"); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		c.Close()
	})
	client := &http.Client{
		Timeout:       time.Minute, // a leg that nobody answers fails its test, and not the whole run
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &rig{Cluster: c, t: t, client: client}
}

// call is a leg to be sent.
type call struct {
	leg    string // also picks path suffix and profile
	path   string // of the client; chat if empty
	id     string // request id; "req" if empty
	body   string
	header map[string]string // "" deletes
}

func (r *rig) request(ctx context.Context, c call) *http.Request {
	r.t.Helper()
	path := c.path
	if path == "" {
		path = chatPath
	}
	if c.leg == Render {
		path += "/render"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL()+path, strings.NewReader(c.body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Coordinator-Hop", "1")
	req.Header.Set("X-Request-Id", "req")
	if c.id != "" {
		req.Header.Set("X-Request-Id", c.id)
	}
	if c.leg != Render {
		req.Header.Set("EPP-Profile", c.leg)
	}
	for name, value := range c.header {
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	return req
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the call, or of reading the body
}

func (r *rig) send(c call) answer { return r.sendContext(context.Background(), c) }

func (r *rig) sendContext(ctx context.Context, c call) answer {
	resp, err := r.client.Do(r.request(ctx, c))
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// sendLater sends in the background.
func (r *rig) sendLater(ctx context.Context, c call) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- r.sendContext(ctx, c) }()
	return got
}

func (r *rig) wait(ok func(State) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.Wait(ctx, ok); err != nil {
		r.t.Fatalf("waiting: %v; state %+v", err, r.State())
	}
}

// noViolations fails the test if the cluster noted any.
func (r *rig) noViolations() {
	r.t.Helper()
	if v := r.State().Violations; len(v) > 0 {
		r.t.Errorf("violations: %q", v)
	}
}

// chat is a chat body; more is further members, with a comma before each.
func chat(prompt, more string) string {
	text, _ := json.Marshal(prompt)
	return `{"model":"demo-model","messages":[{"role":"user","content":` + string(text) + `}]` + more + `}`
}

// prefillBody is a good prefill.
func prefillBody(prompt string) string {
	return chat(prompt, `,"max_tokens":1,"stream":false,"ignore_eos":true,"kv_transfer_params":`+nixlAsk)
}

// handoff prefills and returns what the worker gave out.
func (r *rig) handoff(id, prompt string) string {
	r.t.Helper()
	got := r.send(call{leg: Prefill, id: id, body: prefillBody(prompt)})
	var answer struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != http.StatusOK {
		r.t.Errorf("prefill: %v, %+v", err, got) // not Fatal: it may be another goroutine's
	}
	return string(answer.Params)
}

// said is the text of an answer, streamed or not, of the first choice.
func said(t *testing.T, body string) string {
	t.Helper()
	if !strings.HasPrefix(body, "data: ") {
		return choiceText(t, body)
	}
	var text strings.Builder
	for _, event := range events(body) {
		if event != "[DONE]" {
			text.WriteString(choiceText(t, event))
		}
	}
	return text.String()
}

func choiceText(t *testing.T, body string) string {
	t.Helper()
	var answer struct {
		Choices []struct {
			Text           string
			Message, Delta struct{ Content string }
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if len(answer.Choices) == 0 {
		return ""
	}
	first := answer.Choices[0]
	return first.Text + first.Message.Content + first.Delta.Content
}

func events(body string) []string {
	var list []string
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			list = append(list, data)
		}
	}
	return list
}
