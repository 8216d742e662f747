package assembly_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
)

// TestAnnotatedConfigurationIsWhole: conf/coordinator.toml lists every param of
// every step, and is itself a configuration that a coordinator can be built of.
func TestAnnotatedConfigurationIsWhole(t *testing.T) {
	params := map[string]any{"render": phases.RenderParams{}, "prefill": phases.PrefillParams{}, "decode": phases.DecodeParams{},
		"replace-media-urls": phases.MediaParams{}, "encode": phases.EncodeParams{}, "conditional-decode": phases.ConditionalParams{},
		"async-broker": phases.AsyncBrokerParams{}, "prefill-decode": phases.PrefillDecodeParams{}}
	for _, step := range phases.Types() {
		p, ok := params[step]
		if !ok {
			if step != "touchy" { // of this package's tests
				t.Errorf("step %s is not known to this test", step)
			}
			continue
		}
		_, section, ok := strings.Cut(string(conf.Annotated), `type = "`+step+`"`)
		if !ok {
			t.Errorf("step %s is not in coordinator.toml", step)
			continue
		}
		section, _, _ = strings.Cut(section, "[[pipeline.steps]]")
		var listed []string
		for _, m := range regexp.MustCompile(`(?m)^(?:# *)?([a-z_.]+) += .*#`).FindAllStringSubmatch(section, -1) {
			listed = append(listed, m[1])
		}
		if want := conf.Keys(p); !slices.Equal(slices.Sorted(slices.Values(listed)), slices.Sorted(slices.Values(want))) {
			t.Errorf("step %s: coordinator.toml lists %v, the params are %v", step, listed, want)
		}
	}
	cfg, err := conf.Parse("coordinator.toml", conf.Annotated, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	if err := c.Describe(&out); err != nil || !strings.Contains(out.String(), "at http://rendering-service:8080") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if changes := cfg.Changes(); len(changes) != 1 || !strings.HasSuffix(changes[0].Key, "address") {
		t.Errorf("the params' defaults are not those in coordinator.toml: %v", changes)
	}
}

// TestPipelinesThatCannotServeFailAtStartup and say why.
func TestPipelinesThatCannotServeFailAtStartup(t *testing.T) {
	const render = "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"http://127.0.0.1:1\" }\n"
	tests := []struct{ name, pipeline, steps, want string }{
		{"unknown step", "", "[[pipeline.steps]]\ntype = \"encodee\"\n" + decodeStep, "unknown step type: encodee"},
		{"encode without render", "", encodeStep + prefillStep + decodeStep, `"encode" needs a "render" step`},
		{"encode without prefill", "", render + encodeStep + decodeStep, `"encode" needs a "prefill" step`},
		{"encode after prefill", "", render + prefillStep + encodeStep + decodeStep, `"encode" must come before "prefill"`},
		{"media after render", "", render + mediaStep + decodeStep, `"replace-media-urls" must come before "render"`},
		{"probe after prefill", "", render + prefillStep + conditionalStep + decodeStep, `"conditional-decode" must come before "prefill"`},
		{"probe before render", "", conditionalStep + render + decodeStep, `"render" must come before "conditional-decode"`},
		{"prompt ids without prefill", "", render + decodeStep + "params = { prompt_token_ids = true }\n", `prompt_token_ids of "decode" needs a "prefill" step`},
		{"prompt ids without render", "", prefillStep + decodeStep + "params = { prompt_token_ids = true }\n", `prompt_token_ids of "decode" needs a "render" step`},
		{"cached tokens without prefill", "", render + decodeStep + "params = { cached_tokens_from_prefill = true }\n", `cached_tokens_from_prefill of "decode" needs a "prefill" step`},
		{"tokens in without render", "use_openai_format = false\n", prefillStep + decodeStep, "use_openai_format = false needs a \"render\" step"},
		{"tokens in for one step without render", "", prefillStep + "params = { use_openai_format = false }\n" + decodeStep, "use_openai_format = false needs a \"render\" step"},
		{"format of decode", "", decodeStep + "params = { use_openai_format = false }\n", "use_openai_format: unknown key"},
		{"format of the probe", "", conditionalStep + "params = { use_openai_format = false }\n" + decodeStep, "use_openai_format: unknown key"},
		{"ec connectors differ", "", render + encodeStep + "params = { ec_connector = \"ec-nixl\" }\n" + prefillStep + decodeStep, "encode has the ec connector ec-nixl and prefill ec-shared-storage"},
		{"no such ec connector", "ec_connector = \"ec-x\"\n", prefillStep + decodeStep, `unknown ec connector "ec-x"`},
		{"no network", "", "[[pipeline.steps]]\ntype = \"replace-media-urls\"\nparams = { allowed_networks = [\"10.0.0\"] }\n" + decodeStep, "allowed_networks"},
		{"no decode", "", render + prefillStep, `a "decode" step must be there, once, as the last step`},
		{"decode first", "", decodeStep + prefillStep, `a "decode" step must be there, once, as the last step`},
		{"decode twice", "", decodeStep + decodeStep, `step "decode" is there twice`},
		{"prefill twice", "", prefillStep + prefillStep + decodeStep, `step "prefill" is there twice`},
		{"render after prefill", "", prefillStep + render + decodeStep, `"render" must come before "prefill"`},
		{"connectors differ", "", prefillStep + "params = { kv_connector = \"kv-nixl\" }\n" + decodeStep, "prefill has the kv connector kv-nixl and decode kv-shared-storage"},
		{"no such connector", "kv_connector = \"kv-nixle\"\n", prefillStep + decodeStep, `unknown kv connector "kv-nixle" (there are: kv-lmcache, kv-mooncake, kv-moriio, kv-nixl, kv-offloading, kv-sglang, kv-shared-storage)`},
		{"sglang", "kv_connector = \"kv-sglang\"\n", prefillStep + decodeStep, `kv-sglang needs prefill and decode in flight together: use one step "prefill-decode" instead of the two`},
		{"sglang on decode alone", "kv_connector = \"kv-sglang\"\n", decodeStep, `use one step "prefill-decode"`},
		{"nixl on the pair", "kv_connector = \"kv-nixl\"\n", pairStep(byReserve), `kv-nixl has decode sent once prefill has answered: use the steps "prefill" and "decode" instead of "prefill-decode"`},
		{"pair without bootstrap", "kv_connector = \"kv-sglang\"\n", pairStep(""), `bootstrap_from: kv-sglang needs the address of the prefill worker`},
		{"reserve without header", "kv_connector = \"kv-sglang\"\n", pairStep(`bootstrap_from = "reserve"`), `bootstrap_header: want the name of the header`},
		{"nobody names the worker", "kv_connector = \"kv-sglang\"\n", pairStep(byHeader), `bootstrap_from = "header:X-Prefill-Worker" of "prefill-decode" needs a "conditional-decode" step, whose answers have that header`},
		{"encode alone names the worker", "kv_connector = \"kv-sglang\"\n", render + encodeStep + pairStep(byHeader), `(those of "encode" come only if there is media): add it, or use "reserve" or "static:<host>"`},
		{"pair and decode", "kv_connector = \"kv-sglang\"\n", pairStep("kv_connector = \"kv-sglang\", "+byReserve) + decodeStep + "params = { kv_connector = \"kv-nixl\" }\n", `"prefill-decode" does what "prefill" and "decode" do: remove "decode"`},
		{"pair and prefill", "kv_connector = \"kv-sglang\"\n", prefillStep + "params = { kv_connector = \"kv-nixl\" }\n" + pairStep(byReserve), `remove "prefill"`},
		{"pair first", "kv_connector = \"kv-sglang\"\n", pairStep(byReserve) + render, `a "prefill-decode" step must be there, once, as the last step`},
		{"format of the pair", "kv_connector = \"kv-sglang\"\n", pairStep(byReserve + ", use_openai_format = false"), "use_openai_format: unknown key"},
		{"no address", "", "[[pipeline.steps]]\ntype = \"render\"\n" + decodeStep, "address: required"},
		{"odd address", "", "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"render:8080\" }\n" + decodeStep, "address"},
		{"no timeout", "", "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"http://r\", timeout = \"0s\" }\n" + decodeStep, "timeout"},
		{"unknown param", "", "[[pipeline.steps]]\ntype = \"decode\"\nparams = { hold = true }\n", "hold: unknown key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := conf.Parse("f.toml", []byte("[pipeline]\n"+tt.pipeline+tt.steps), nil)
			if err == nil {
				var c *assembly.Coordinator
				if c, err = assembly.New(cfg, assembly.Options{}); err == nil {
					c.Close()
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}
