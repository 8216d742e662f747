package assembly_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
)

// operators makes a coordinator with lines in [admin], which nobody calls.
func operators(t *testing.T, lines string, environ map[string]string) (*assembly.Coordinator, *logBuffer, error) {
	t.Helper()
	cfg, err := conf.Parse("ops.toml", []byte("[gateway]\naddress = \"http://127.0.0.1:1\"\nheaders = { X-Key = \"the-header\" }\n"+
		"[[pipeline.steps]]\ntype = \"decode\"\n[admin]\n"+lines), nil)
	if err != nil {
		t.Fatal(err)
	}
	logs := &logBuffer{}
	c, err := assembly.New(cfg, assembly.Options{Log: slog.New(slog.NewTextHandler(logs, nil)),
		LookupEnv: func(name string) (string, bool) { v, ok := environ[name]; return v, ok }})
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, logs, err
}

// ask asks the operators' listener of a coordinator with a token, if it is not "".
func ask(c *assembly.Coordinator, path, token string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil), httptest.NewRecorder()
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	c.Admin.Handler().ServeHTTP(w, r)
	return w
}

func TestAdminToken(t *testing.T) {
	dir := filestest.NewDir(t)
	dir.Write("token", []byte("the-secret\n"))
	for _, spec := range []string{"the-secret", "env:TOKEN", "file:" + dir.Path("token")} {
		c, logs, err := operators(t, "listen_addr = \":9090\"\ntoken = \""+spec+"\"\n", map[string]string{"TOKEN": "the-secret"})
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		for _, path := range []string{"/", "/metrics", "/status", "/requests", "/config", "/events", "/debug/pprof/", "/page.js", "/nowhere"} {
			if w := ask(c, path, ""); w.Code != 401 {
				t.Errorf("%s, %s without: %d", spec, path, w.Code)
			}
			if w := ask(c, path, "another"); w.Code != 401 {
				t.Errorf("%s, %s with another: %d", spec, path, w.Code)
			}
		}
		if w := ask(c, "/metrics", "the-secret"); w.Code != 200 {
			t.Errorf("%s: %d", spec, w.Code)
		}
		config := ask(c, "/config", "the-secret").Body.String()
		if strings.Contains(config, "the-secret") || strings.Contains(config, "the-header") || !strings.Contains(config, `"admin.token"`) {
			t.Errorf("%s: %s", spec, config)
		}
		if strings.Contains(logs.String(), "asks for no token") || strings.Contains(logs.String(), "the-secret") {
			t.Errorf("%s: %s", spec, logs)
		}
	}
}

func TestAdminTokenThatIsNone(t *testing.T) {
	for spec, want := range map[string]string{
		"env:NOBODY":   `there is no environment variable "NOBODY"`,
		"env:EMPTY":    "the token is empty",
		"  ":           "the token is empty",
		"file:/no/way": "no such file",
	} {
		_, _, err := operators(t, "token = \""+spec+"\"\n", map[string]string{"EMPTY": " "})
		if err == nil || !strings.Contains(err.Error(), "admin.token") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// TestOpenListenerIsWarnedOf if it asks for no token, and only then.
func TestOpenListenerIsWarnedOf(t *testing.T) {
	for address, want := range map[string]bool{
		":9090": true, "0.0.0.0:9090": true, "10.0.0.1:9090": true, "[::]:9090": true, "ops.example:9090": true,
		"127.0.0.1:9090": false, "[::1]:9090": false, "localhost:9090": false, "": false,
	} {
		_, logs, err := operators(t, "listen_addr = \""+address+"\"\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(logs.String(), "asks for no token"); got != want {
			t.Errorf("%s: warned %t: %s", address, got, logs)
		}
	}
}

// TestDrainByOperator: it says that it is not ready, and goes on.
func TestDrainByOperator(t *testing.T) {
	r := newRig(t, setup{})
	w := httptest.NewRecorder()
	r.Admin.Handler().ServeHTTP(w, httptest.NewRequest("POST", "http://127.0.0.1/drain", nil))
	if w.Code != 200 || !r.Server.Draining() {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if status := ask(r.Coordinator, "/status", "").Body.String(); !strings.Contains(status, `"draining": true`) || !strings.Contains(status, `"reason": "shutting down"`) {
		t.Errorf("%s", status)
	}
	ready := httptest.NewRecorder()
	r.Server.Handler().ServeHTTP(ready, httptest.NewRequest("GET", "/readyz", nil))
	if ready.Code != 503 {
		t.Errorf("/readyz: %d", ready.Code)
	}
	if got := r.post(chatPath, chatBody("hi", true)); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.settled()
}
