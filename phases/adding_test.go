package phases_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestThePagesShowTheCodeThatIsTested: docs/adding-a-phase.md and
// adding-a-connector.md hold the files that the test below runs.
func TestThePagesShowTheCodeThatIsTested(t *testing.T) {
	for page, file := range map[string]string{"adding-a-phase.md": "screen_test.go", "adding-a-connector.md": "stamped_test.go"} {
		text, err := os.ReadFile("../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```go\n"+string(code)+"```") {
			t.Errorf("docs/%s does not show phases/%s as it is", page, file)
		}
	}
}

// TestThePagesExamplesRun in a whole coordinator, by configuration alone.
func TestThePagesExamplesRun(t *testing.T) {
	workers := cluster.New(cluster.Options{})
	if err := workers.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer workers.Close()
	var screened atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		screened.Add(1)
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "forbidden") {
			w.WriteHeader(http.StatusForbidden)
		}
		io.WriteString(w, "{}")
	}))
	defer service.Close()
	text := fmt.Sprintf("[gateway]\naddress = %q\n[pipeline]\nkv_connector = \"kv-stamped\"\n"+
		"[[pipeline.steps]]\ntype = \"screen\"\nparams = { address = %q }\n"+
		"[[pipeline.steps]]\ntype = \"prefill\"\n[[pipeline.steps]]\ntype = \"decode\"\n", workers.URL(), service.URL)
	cfg, err := conf.Parse("page.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, l, nil)
	}()
	defer func() { stop(); <-ended }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for prompt, want := range map[string]int{"a fine prompt": 200, "a forbidden prompt": 403} {
		resp, err := client.Post("http://"+l.Addr().String()+"/v1/completions", "application/json",
			strings.NewReader(fmt.Sprintf(`{"model":"demo-model","prompt":%q}`, prompt)))
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || (want == 200) != strings.Contains(string(answer), cluster.Reply(prompt)) {
			t.Errorf("%s: %d %s", prompt, resp.StatusCode, answer)
		}
	}
	if n := screened.Load(); n != 2 {
		t.Errorf("screened %d times", n)
	}
	for _, leg := range workers.Legs("") {
		if leg.Name == cluster.Prefill && !strings.Contains(string(leg.Body), `"x_fleet":"blue"`) {
			t.Errorf("prefill was sent %s", leg.Body)
		}
	}
}
