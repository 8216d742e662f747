package migrate

import (
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/conf"
)

// TestTogetherIsOneStep: what is two steps there with SGLang is one here, and all
// that is left to do is to say where the worker's address comes from.
func TestTogetherIsOneStep(t *testing.T) {
	r, err := Convert("llm-d.yaml", []byte("pipeline:\n  kv_connector: kv-sglang\n  steps:\n    - {type: encode}\n    - {type: prefill, params: {ec_connector: ec-nixl}}\n    - {type: decode, params: {kv_connector: kv-sglang}}\n"))
	if err != nil || len(r.Warnings) != 0 {
		t.Fatalf("%v %q", err, r.Warnings)
	}
	cfg, err := conf.Parse("output", r.TOML, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.TOML)
	}
	if steps := cfg.Pipeline.Steps; len(steps) != 2 || steps[1].Type != "prefill-decode" {
		t.Errorf("steps %+v", steps)
	}
	if !strings.Contains(string(r.TOML), "set bootstrap_from") {
		t.Errorf("%s", r.TOML)
	}
}
