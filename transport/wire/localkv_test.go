package wire

import (
	"fmt"
	"testing"
)

func TestRequestsThatCannotUseARemoteKV(t *testing.T) {
	one := map[string]map[string]bool{ // field, value, is it a reason
		"n": {"null": false, "false": false, "0": false, "1": false, "1.0": false, "-1": false, `"1"`: false, `"0"`: false, "1e0": false,
			"2": true, "1.5": true, `"2"`: true, `"\u0032"`: true, "2.0": true, "2e0": true, "1e400": true, "9007199254740993": true, "true": true, `"true"`: true, `"x"`: true, `""`: true,
			`"nan"`: true, `"inf"`: true, `" 1"`: true, "[]": true, "[2]": true, "{}": true},
		"use_beam_search": {"null": false, "false": false, "true": true, "1": true, "0": true, `"true"`: true, `"false"`: true, "{}": true},
		"prompt_logprobs": {"null": false, "false": false, "0": true, "1": true, "1.0": true, "-1": true, "true": true, `"2"`: true, `""`: true, "[]": true},
		"truncate_prompt_tokens": {"null": false, "false": false, "0": false, "1": false, "1.0": false, `"2"`: false, "9e9": false,
			"-1": true, "-1.0": true, `"-1"`: true, "-1e400": true, "1e400": true, "true": true, `"x"`: true, `"nan"`: true, "[]": true},
		// these are none by themselves
		"echo": {"true": false, "1": false}, "logprobs": {"true": false, "5": false}, "max_tokens": {"0": false, "null": false},
	}
	one["best_of"] = one["n"]
	for field, values := range one {
		for value, reason := range values {
			want := ""
			if reason {
				want = field
			}
			wantLocal(t, fmt.Sprintf(`{%q:%s}`, field, value), want)
			wantLocal(t, fmt.Sprintf(`{%q:null,"a":1, "\u%04x%s" : %s }`, field, field[0], field[1:], value), want)
			wantLocal(t, fmt.Sprintf(`{%q:%s,%q:null}`, field, value, field), "")
		}
	}
	for params, want := range map[string]string{
		`{"echo":true,"logprobs":1}`: "echo_logprobs", `{"echo":true,"logprobs":0}`: "echo_logprobs", `{"echo":true,"logprobs":true}`: "echo_logprobs", `{"echo":1,"logprobs":"x"}`: "echo_logprobs",
		`{"echo":true,"logprobs":null}`: "", `{"echo":true,"logprobs":false}`: "", `{"echo":false,"logprobs":1}`: "", `{"echo":null,"logprobs":1}`: "", `{"logprobs":1}`: "",
		`{"echo":true,"max_tokens":0}`: "echo_max_tokens", `{"echo":true,"max_tokens":0.0}`: "echo_max_tokens", `{"echo":true,"max_tokens":-0}`: "echo_max_tokens", `{"echo":"true","max_tokens":"0"}`: "echo_max_tokens",
		`{"echo":true,"max_tokens":1}`: "", `{"echo":true,"max_tokens":null}`: "", `{"echo":true}`: "", `{"echo":false,"max_tokens":0}`: "", `{"max_tokens":0}`: "", `{"echo":true,"max_tokens":16}`: "",
		`{"echo":true,"logprobs":1,"max_tokens":0}`: "echo_logprobs", `{"echo":true,"logprobs":false,"max_tokens":0}`: "echo_max_tokens",
		// the first in the contract's order
		`{"truncate_prompt_tokens":-1,"n":2,"best_of":2}`: "n", `{"truncate_prompt_tokens":-1,"n":1,"best_of":2}`: "best_of",
		`{"prompt_logprobs":0,"use_beam_search":true}`: "use_beam_search", `{}`: "", `{"N":2,"m":{"n":2}}`: "",
	} {
		wantLocal(t, params, want)
	}
}

// wantLocal asks each protocol: generate has these members in sampling_params,
// and others mean nothing to it.
func wantLocal(t *testing.T, params, want string) {
	t.Helper()
	nested := `{"token_ids":[1],"sampling_params":` + params + `}`
	for _, tt := range []struct {
		p          *Protocol
		body, want string
	}{{Chat, params, want}, {Completions, params, want}, {Generate, nested, want}, {Generate, params, ""}, {Chat, nested, ""}, {Completions, nested, ""}} {
		if got := tt.p.LocalKV(mustParse(t, tt.body)); got != tt.want {
			t.Errorf("%s: %s: %q, want %q", tt.p.Name, tt.body, got, tt.want)
		}
	}
}

func TestGenerateWithoutSamplingParams(t *testing.T) {
	for _, params := range []string{"null", "{}", "[]", "7"} {
		if got := Generate.LocalKV(mustParse(t, `{"n":2,"sampling_params":`+params+`}`)); got != "" {
			t.Errorf("%s: %q", params, got)
		}
	}
}
