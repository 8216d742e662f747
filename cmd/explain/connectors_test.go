package explain

import (
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/conf"
)

// TestFurtherConnectorsAreExplained: what decode and prefill are told, with the
// stand-in's answers, and no worker is asked for anything.
func TestFurtherConnectorsAreExplained(t *testing.T) {
	const image = `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}`
	worker := `bootstrap_from = "static:` + untouched(t) + `"`
	for _, tt := range []struct{ kv, ec, encode, prefill, leg, want string }{
		{"kv-lmcache", "ec-nixl", "", "", "decode", ``},
		{"kv-mooncake", "ec-nixl", "", worker, "decode", `"remote_engine_id":"placeholder-engine","remote_bootstrap_addr":"http://127.0.0.1:8998"`},
		{"kv-offloading", "ec-nixl", "", worker, "decode", `"remote_host":"127.0.0.1","remote_port":5710`},
		{"kv-moriio", "ec-nixl", "", "fleet = { prefill_tp_size = 16 }", "decode", `"remote_tp_size":16`},
		{"kv-nixl", "ec-mooncake", "consumer_port = 29600, " + worker, "", "encode", `"consumer_zmq":"tcp://127.0.0.1:29600"`},
		{"kv-nixl", "ec-mooncake", "consumer_port = 29600, " + worker, "", "prefill", `"ec_items":[{"placeholder-metadata":`},
	} {
		step := func(kind, params string) string {
			return "[[pipeline.steps]]\ntype = \"" + kind + "\"\nparams = { " + params + " }\n"
		}
		cfg, err := conf.Parse("f.toml", []byte("[pipeline]\nkv_connector = \""+tt.kv+"\"\nec_connector = \""+tt.ec+"\"\n"+
			step("render", `address = "http://127.0.0.1:1"`)+step("encode", tt.encode)+step("prefill", tt.prefill)+step("decode", "")), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Explain(t.Context(), cfg, nothing, Request{Route: "/v1/chat/completions", Body: []byte(image)})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, leg := range r.Legs {
			if leg.Name == tt.leg {
				found = true
				if body := leg.compact(t); !strings.Contains(body, tt.want) || tt.want == "" && strings.Contains(body, "kv_transfer_params") {
					t.Errorf("%s: %s", tt.kv, body)
				}
			}
		}
		if !found {
			t.Errorf("%s, %s: there is no %s leg: %+v", tt.kv, tt.ec, tt.leg, r.Legs)
		}
	}
}

// TestPortsOfWorkersAreThoseOfTheEnvironment, as they are for the coordinator. Nothing
// else of it is read.
func TestPortsOfWorkersAreThoseOfTheEnvironment(t *testing.T) {
	for name, tt := range map[string]struct{ kv, want string }{
		"SGLANG_BOOTSTRAP_PORT":        {"kv-sglang", `"bootstrap_host":"10.0.0.1","bootstrap_port":9001`},
		"VLLM_MOONCAKE_BOOTSTRAP_PORT": {"kv-mooncake", `"remote_bootstrap_addr":"http://10.0.0.1:9001"`},
		"VLLM_P2P_SIDE_CHANNEL_PORT":   {"kv-offloading", `"remote_host":"10.0.0.1","remote_port":9001`},
	} {
		cfg, err := conf.Parse("f.toml", []byte("[gateway]\nheaders = { X-Key = \"env:GATEWAY_KEY\" }\n[pipeline]\nkv_connector = \""+tt.kv+"\"\n"+
			"[[pipeline.steps]]\ntype = \"prefill-decode\"\nparams = { bootstrap_from = \"static:10.0.0.1\" }\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		lookup := func(asked string) (string, bool) {
			if asked != name {
				t.Errorf("%s is read", asked)
			}
			return "9001", true
		}
		r, err := Explain(t.Context(), cfg, lookup, Request{Route: "/v1/chat/completions", Body: chat(`"hi"`)})
		if err != nil {
			t.Fatal(err)
		}
		if decode := r.Legs[len(r.Legs)-1].compact(t); !strings.Contains(decode, tt.want) {
			t.Errorf("%s: %s", tt.kv, decode)
		}
	}
}
