package assembly_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/broker"
)

// TestAsyncConfig: each error that a start ends with, by name.
func TestAsyncConfig(t *testing.T) {
	t.Parallel()
	m, err := broker.StartMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	url := fmt.Sprintf("redis_url = %q\n", m.URL())
	step := func(params string) string {
		return "[[pipeline.steps]]\ntype = \"async-broker\"\n[pipeline.steps.params]\n" + params + "\n"
	}
	for _, tt := range []struct{ name, steps, want string }{
		{"fine", step(url) + fullSteps, ""},
		{"no redis_url", step("") + fullSteps, "redis_url: required"},
		{"no URL", step(`redis_url = "nonsense:hunter2"`) + fullSteps, "redis_url"},
		{"redis is down", step(`redis_url = "redis://:hunter2@127.0.0.1:1/0"`) + fullSteps, "redis_url"},
		{"wakeup_mode", step(url+`wakeup_mode = "push"`) + fullSteps, "wakeup"},
		{"negative grace", step(url+`fetch_grace_seconds = -1`) + fullSteps, "fetch_grace_seconds"},
		{"negative cap", step(url+`wait_cap_seconds = -1`) + fullSteps, "wait_cap_seconds"},
		{"negative time-out", step(url+`timeouts = { wait = { max_seconds = -1 } }`) + fullSteps, "timeouts.wait.max_seconds"},
		{"negative default", step(url+`timeouts = { enqueue = { default_seconds = -1 } }`) + fullSteps, "timeouts.enqueue.default_seconds"},
		{"negative window", step(url+`quota = { window_seconds = -1 }`) + fullSteps, "quota.window_seconds"},
		{"negative limit", step(url+`quota = { limits = { acme = -1 } }`) + fullSteps, "quota.limits.acme"},
		{"default above the maximum", step(url+`timeouts = { enqueue = { default_seconds = 10, max_seconds = 5 } }`) + fullSteps, "timeouts.enqueue"},
		{"wait's default above its maximum", step(url+`timeouts = { wait = { max_seconds = 5 } }`) + fullSteps, "timeouts.wait"},
		{"wait's maximum follows its default", step(url+`timeouts = { wait = { default_seconds = 5000 } }`) + fullSteps, ""},
		{"time-outs of another mode", step(url+`timeouts = { passthrough = { default_seconds = 10 } }`) + fullSteps, "timeouts.passthrough"},
		{"forwards the mode", step(url+`forward_headers = ["X-LLM-D-Async-Mode"]`) + fullSteps, "forward_headers"},
		{"forwards the objective", step(url+`forward_headers = ["x-llm-d-inference-objective"]`) + fullSteps, "forward_headers"},
		{"forwards the fairness id", step(url+"fairness_header = \"x-f\"\nforward_headers = [\"X-F\"]") + fullSteps, "forward_headers"},
		{"unknown key", step(url+`redis_uri = "x"`) + fullSteps, "redis_uri"},
		{"unknown key of a route", step(url+`routes = [{ header = "x" }]`) + fullSteps, "header"},
		{"not the first step", renderStep + step(url) + prefillStep + decodeStep, "first"},
		{"twice", step(url) + step(url) + fullSteps, "async-broker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "[gateway]\naddress = \"http://127.0.0.1:1\"\n[pipeline]\n" + strings.NewReplacer("CLUSTER", "http://127.0.0.1:1", ", RENDER", "").Replace(tt.steps)
			cfg, err := conf.Parse("rig.toml", []byte(text), nil)
			if err == nil {
				var c *assembly.Coordinator
				if c, err = assembly.New(cfg, assembly.Options{}); err == nil {
					c.Close()
				}
			}
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %s", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("a secret: %v", err)
			}
		})
	}
}
