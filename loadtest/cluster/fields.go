package cluster

import "encoding/json"

// checkFields refuses what vLLM refuses of any request, whatever leg it is.
// sampling is where its sampling parameters are: in the body itself, or, of a
// tokensIn request, in an object there.
func checkFields(a *api, body, sampling object) error {
	checks := []func(object) error{checkStreaming, checkSalt}
	switch {
	case a.typed:
		checks = append(checks, checkResponse)
	case !a.tokensIn:
		checks = append(checks, checkLogprobs, checkTools)
	}
	for _, check := range checks {
		if err := check(body); err != nil {
			return err
		}
	}
	if err := checkLimits(a, sampling); err != nil {
		return err
	}
	return checkSampling(sampling)
}

func checkStreaming(o object) error {
	stream, err := o.truth("stream")
	if err != nil {
		return err
	}
	options, err := o.inner("stream_options")
	if err != nil {
		return err
	}
	if len(options) > 0 && !stream {
		return badValue("stream_options", "Stream options can only be defined when `stream=True`.")
	}
	_, err = options.truth("include_usage")
	return err
}

func checkLimits(a *api, o object) error {
	limit, limited, err := a.tokenLimit(o)
	if err != nil {
		return err
	}
	least, _, err := o.integer("min_tokens")
	if err != nil {
		return err
	}
	if least < 0 {
		return badValue("min_tokens", "min_tokens must be greater than or equal to 0, got %d.", least)
	}
	if limited && least > limit {
		return badValue("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", limit, least)
	}
	return nil
}

// tokenLimit returns how many tokens the answer may have. Of its two spellings
// max_completion_tokens wins.
func (a *api) tokenLimit(o object) (limit int, limited bool, err error) {
	names := []string{"max_tokens", "max_completion_tokens"}
	if a.typed {
		names = []string{responseLimit}
	}
	for _, name := range names {
		n, there, err := o.integer(name)
		if err != nil {
			return 0, false, err
		}
		if !there {
			continue
		}
		if echo, _ := o.truth("echo"); n < 1 && !(n == 0 && echo) {
			return 0, false, badValue(name, "%s must be at least 1, got %d.", name, n)
		}
		limit, limited = n, true
	}
	return limit, limited, nil
}

func checkSampling(o object) error {
	temperature, _, err := o.number("temperature")
	if err != nil {
		return err
	}
	if temperature < 0 {
		return badValue("temperature", "temperature must be non-negative, got %v.", temperature)
	}
	p, there, err := o.number("top_p")
	if err != nil {
		return err
	}
	if there && (p <= 0 || p > 1) {
		return badValue("top_p", "top_p must be in (0, 1], got %v.", p)
	}
	if _, _, err := o.integer("seed"); err != nil {
		return err
	}
	n, there, err := o.integer("n")
	if err != nil {
		return err
	}
	if there && (n < 1 || n > 4) {
		return badValue("n", "n must be between 1 and 4, got %d.", n)
	}
	var stop any
	if o.has("stop") {
		_ = json.Unmarshal(o["stop"], &stop) // valid, or it were not in an object
	}
	switch stop.(type) {
	case nil, string, []any:
	default:
		return badSchema("stop", "stop: Input should be a string or a list of strings")
	}
	return nil
}

func checkSalt(o object) error {
	if salt, err := o.text("cache_salt"); err != nil || o.has("cache_salt") && salt == "" {
		return badValue("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	return nil
}

func checkLogprobs(o object) error {
	// logprobs is a boolean in chat and a number in completions.
	asked := o.has("logprobs") && string(o["logprobs"]) != "false"
	if o.has("top_logprobs") && string(o["logprobs"]) != "true" {
		return badValue("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	}
	if o.has("logprob_token_ids") && !asked {
		return badValue("logprob_token_ids", "when using `logprob_token_ids`, `logprobs` must be set.")
	}
	if stream, _ := o.truth("stream"); stream && o.has("prompt_logprobs") {
		return badValue("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.")
	}
	return nil
}

func checkTools(o object) error {
	tools, err := o.list("tools")
	if err != nil {
		return err
	}
	if tools != nil && len(tools) == 0 {
		return badValue("tools", "`tools` must not be an empty list.")
	}
	if choice := string(o["tool_choice"]); tools == nil && o.has("tool_choice") && choice != `"none"` {
		return badValue("tool_choice", "When using `tool_choice`, `tools` must be set.")
	}
	return nil
}

// checkPrefill refuses what would lose or spoil the hand-off of a prefill. o has
// its sampling parameters.
func checkPrefill(a *api, body, o object) error {
	if a.typed {
		return checkResponsePrefill(body)
	}
	if stream, _ := body.truth("stream"); stream {
		return badValue("stream", "A prefill must not be streamed: its kv_transfer_params would be lost.")
	}
	if limit, there, err := o.integer("max_tokens"); err != nil || !there || limit != 1 {
		return badValue("max_tokens", "A prefill must ask for exactly 1 token in max_tokens.")
	}
	if limit, there, err := o.integer("max_completion_tokens"); err != nil || there && limit != 1 {
		return badValue("max_completion_tokens", "A prefill must ask for exactly 1 token in max_completion_tokens.")
	}
	if n, _, err := o.integer("n"); err != nil || n > 1 {
		return badValue("n", "A prefill must have n=1: its KV can be read once.")
	}
	return nil
}
