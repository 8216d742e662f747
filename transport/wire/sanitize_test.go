package wire

import (
	"fmt"
	"strings"
	"testing"
)

// sanitized returns what is left of a client's body.
func sanitized(t *testing.T, text string) string {
	t.Helper()
	b := mustParse(t, text)
	before := string(b.Edit().Payload().Append(nil))
	got := string(Sanitize(b).Edit().Payload().Append(nil))
	if after := string(b.Edit().Payload().Append(nil)); after != before {
		t.Errorf("the client's body has become %s", after)
	}
	return got
}

// spellings are ways to write a name in JSON.
func spellings(name string) []string {
	var all strings.Builder
	for _, c := range []byte(name) {
		fmt.Fprintf(&all, `\u%04X`, c)
	}
	return []string{name, fmt.Sprintf(`\u%04x`, name[0]) + name[1:], name[:3] + fmt.Sprintf(`\u%04x`, name[3]) + name[4:], all.String()}
}

func TestSanitizeDropsTopLevelNames(t *testing.T) {
	for _, name := range []string{"kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room",
		"routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank", "tokens"} {
		for _, spelt := range spellings(name) {
			for _, value := range []string{`1`, `null`, `"x"`, `{"do_remote_prefill":true,"remote_host":"10.0.0.1"}`, `[]`} {
				member := `"` + spelt + `" : ` + value
				for _, text := range []string{
					`{` + member + `,"model":"m" , "n": 1.0}`,
					`{"model":"m" , "n": 1.0,` + member + `}`,
					`{` + member + `,"model":"m" , "n": 1.0, ` + member + ` , "` + name + `":2,` + member + `}`,
				} {
					if got := sanitized(t, text); got != `{"model":"m" , "n": 1.0}` {
						t.Errorf("of %s\n%s is left", text, got)
					}
				}
			}
		}
	}
}

func TestSanitizeDropsTransferParamsInside(t *testing.T) {
	for _, name := range []string{"kv_transfer_params", "ec_transfer_params"} {
		for _, spelt := range spellings(name) {
			for _, outside := range []struct{ name, before, after string }{
				{"vllm_xargs", `{"model":"m", "vllm_xargs" : `, `, "n":1.0}`},
				{"extra_args", `{"model":"m", "sampling_params" : {"a":1.0,"extra_args":`, `,"z":{ "y" : 1 }}, "n":1.0}`},
			} {
				want := split1(outside.before + `{"top":"x","list":[ 1, 2 ]}` + outside.after)
				for _, object := range []string{
					`{"` + spelt + `":{"a":1},"top":"x","list":[ 1, 2 ]}`,
					`{"top":"x" , "` + spelt + `" : null , "list":[ 1, 2 ] }`,
					`{"top":"x","` + spelt + `":1,"list":[ 1, 2 ],"` + name + `":2,"` + spelt + `":3}`,
				} {
					text := outside.before + object + outside.after
					if got := split1(sanitized(t, text)); got != want {
						t.Errorf("of %s\n%s is left\nwant %s", text, got, want)
					}
				}
			}
		}
	}
}

// split1 spells the first three levels of an object without white space
// between members: of an object from which something is taken, only the
// values stay as they were spelt.
func split1(text string) string {
	var spell func(text string, level int) string
	spell = func(text string, level int) string {
		members, _, ok := split([]byte(text))
		if !ok || level == 0 {
			return text
		}
		var parts []string
		for _, m := range members {
			parts = append(parts, m.name+":"+spell(m.value, level-1))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return spell(text, 3)
}

func TestSanitizeOfNestedObjects(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		// both names at once; nothing else in it
		{`{"vllm_xargs":{"kv_transfer_params":1,"ec_transfer_params":2}}`, `{"vllm_xargs":{}}`},
		// every one of repeated objects is gone through: workers read one or the other
		{`{"sampling_params":{"extra_args":{"kv_transfer_params":1,"a":1},"extra_args":{"kv_transfer_params":2},"extra\u005fargs":{"b":2,"ec_transfer_params":3}}}`,
			`{"sampling_params":{"extra_args":{"a":1},"extra_args":{},"extra\u005fargs":{"b":2}}}`},
		{`{"sampling_params":{"extra_args":{"kv_transfer_params":1},"extra_args":7}}`, `{"sampling_params":{"extra_args":{},"extra_args":7}}`},
		// outer names in other spellings
		{`{"vllm\u005fxargs":{"kv_transfer_params":1},"sampling\u005fparams":{"extra_\u0061rgs":{"ec_transfer_params":1}}}`,
			`{"vllm_xargs":{},"sampling_params":{"extra_\u0061rgs":{}}}`},
		// of repeated members only the last is there to be gone through
		{`{"vllm_xargs":{"kv_transfer_params":1},"vllm_xargs":{ "a" : 1 }}`, `{"vllm_xargs":{ "a" : 1 }}`},
		{`{"vllm_xargs":{"a":1},"vllm_xargs":{"kv_transfer_params":1}}`, `{"vllm_xargs":{}}`},
	} {
		if got := sanitized(t, tt.text); got != tt.want {
			t.Errorf("of %s\n%s is left\nwant %s", tt.text, got, tt.want)
		}
	}
}

func TestSanitizeLeavesEverythingElse(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"model":"m", "messages" : [ ] ,"seed":9007199254740993,"temperature":1.0}`,
		// names of the list in places where they mean nothing
		`{"messages":[{"role":"user","content":"x","kv_transfer_params":1}],"metadata":{"tokens":1, "bootstrap_host":"h"}}`,
		`{"sampling_params":{ "kv_transfer_params" : 1 , "tokens":2,"n":1.0}}`,
		`{"sampling_params":{"other_args":{"kv_transfer_params":1}}}`,
		`{"vllm_xargs":{"bootstrap_host":"h", "tokens" : 1,"x":{"kv_transfer_params":1}}}`,
		`{"sampling_params":{"extra_args":{"data_parallel_rank":1, "x" : [{"ec_transfer_params":1}]}}}`,
		`{"extra_args":{"kv_transfer_params":1}}`,
		`{"Tokens":1,"KV_transfer_params":1,"kv_transfer_params ":1,"tokens\\u0000":1,"token":1}`,
		// what is no object
		`{"vllm_xargs":null,"sampling_params":"kv_transfer_params"}`,
		`{"vllm_xargs":[ {"kv_transfer_params":1} ],"sampling_params":[ {"extra_args":{"kv_transfer_params":1}} ]}`,
		`{"vllm_xargs":1.0,"sampling_params":{"extra_args":[ "kv_transfer_params" ]}}`,
		`{"sampling_params":{"extra_args":null , "extra_args" : "ec_transfer_params" }}`,
		`{"vllm_xargs":{ } , "sampling_params": { "extra_args" : { } }}`,
	} {
		if got := sanitized(t, text); got != text {
			t.Errorf("of %s\n%s is left", text, got)
		}
	}
}

// What Sanitize has set is found by Get and leaves on every leg made of it.
func TestSanitizedBodyIsAsGoodAsAParsedOne(t *testing.T) {
	b := Sanitize(mustParse(t, `{"vllm_xargs":{"kv_transfer_params":1,"a":1},"tokens":[1],"n":2}`))
	if got := string(b.Get("vllm_xargs")); got != `{"a":1}` {
		t.Errorf("Get finds %s", got)
	}
	if got := b.Get("tokens"); got != nil {
		t.Errorf("Get finds %s", got)
	}
	e := b.Edit()
	e.SetRaw("tokens", "{}")
	if got := string(e.Payload().Append(nil)); got != `{"vllm_xargs":{"a":1},"n":2,"tokens":{}}` {
		t.Errorf("an edit of it leaves as %s", got)
	}
	if got := string(b.Edit().Payload().Append(nil)); got != `{"vllm_xargs":{"a":1},"n":2}` {
		t.Errorf("it has become %s", got)
	}
}
