package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanIsTOML that check accepts, in the place of what a configuration says of
// pools.
func TestPlanIsTOML(t *testing.T) {
	code, planned, stderr := runCommand("plan", "--rate", "200", "--prompt", "1024", "--output", "256", "--images", "0.3",
		"--times", "render=5ms, prefill=200ms,encode=80ms,decode=6.2s")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	const why = "# decode: 200/s × (200 ms of prefill + 6.2 s of decode) = 1280 busy on average; + 3·√1280 = 1387; × 1.15 = 1596\n"
	if !strings.Contains(planned, why) {
		t.Errorf("no %s in\n%s", why, planned)
	}
	file := filepath.Join(t.TempDir(), "c.toml")
	text := planned + "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"http://render:80\" }\n" +
		"[[pipeline.steps]]\ntype = \"prefill\"\n[[pipeline.steps]]\ntype = \"decode\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := runCommand("check", "-config", file)
	if code != 0 || !strings.Contains(stdout, "decode       1596     400") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	// And for the pipeline that is there now.
	code, again, stderr := runCommand("plan", "-rate", "10", "-config", file)
	if code != 0 || strings.Contains(again, "\nencode = ") || !strings.Contains(again, "\nprefill = ") || !strings.Contains(again, "1596 places") {
		t.Errorf("exit %d: %s%s", code, again, stderr)
	}
}

// TestPlanFromWhatWasMeasured reads a report, or a coordinator's metrics.
func TestPlanFromWhatWasMeasured(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, `# TYPE llm_d_coordinator_pool_size gauge
llm_d_coordinator_pool_size{pool="decode"} 10
# TYPE llm_d_coordinator_request_total counter
llm_d_coordinator_request_total{model_name="m"} 10
# TYPE llm_d_coordinator_step_duration_seconds histogram
llm_d_coordinator_step_duration_seconds_bucket{step="decode",le="+Inf"} 10
llm_d_coordinator_step_duration_seconds_sum{step="decode"} 30
llm_d_coordinator_step_duration_seconds_count{step="decode"} 10
`)
	}))
	defer s.Close()
	code, stdout, stderr := runCommand("plan", "-rate", "10", "-metrics", strings.Replace(s.URL, "//", "//x:secret@", 1)+"/metrics")
	if code != 0 || !strings.Contains(stdout, "decode   3 s     measured: mean of 10 steps") || strings.Contains(stdout, "secret") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	file := filepath.Join(t.TempDir(), "r.json")
	report := `{"counts":{"ok":5},"coordinator":{"mix":{"requests":5},"steps":{"decode":{"count":5,"sum_seconds":10,"mean_seconds":2}}}}`
	if err := os.WriteFile(file, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = runCommand("plan", "-rate", "10", "-from", file)
	if code != 0 || !strings.Contains(stdout, "decode   2 s     measured: mean of 5 steps") || !strings.Contains(stdout, "# Measured: r.json.") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := runCommand("plan", "-rate", "10", "-metrics", s.URL); code != 1 || !strings.Contains(stderr, "-metrics: "+s.URL+" answered 404") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if code, _, stderr := runCommand("plan", "-rate", "10", "-metrics", s.URL, "-from", file); code != 1 || !strings.Contains(stderr, "not both") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestPlanSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"", 1, "how many requests a second? -rate"},
		{"-rate x", 2, "invalid value"},
		{"-rate 1 -images x", 2, "want a number"},
		{"-rate 1 -times decode", 2, `want name=time, as in decode=6s, got "decode"`},
		{"-rate 1 -times decode=1s,decode=2s", 2, "decode is there twice"},
		{"-rate 1 -times deocde=1s", 1, `unknown phase "deocde"`},
		{"-rate 1 -from nowhere.json", 1, "nowhere.json"},
		{"-rate 1 -config nowhere.toml", 1, "nowhere.toml"},
		{"-rate 1 x", 2, `unexpected argument "x"`},
	} {
		code, stdout, stderr := runCommand(append([]string{"plan"}, strings.Fields(tt.args)...)...)
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d\n%s%s", tt.args, code, stdout, stderr)
		}
	}
}
