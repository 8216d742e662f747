package wire

import "strconv"

// LocalKV returns why a request must compute its prompt where it decodes, or
// "": a prefill's KV would be wrong for it, be fetched twice, or crash the
// decode worker. Null and false count as not set; a value that cannot be judged
// counts as set, for decode alone serves any request.
func (p *Protocol) LocalKV(b *Body) string {
	get := b.Get
	if p.tokensIn {
		params := b.Get("sampling_params")
		get = func(name string) []byte { return Lookup(params, name) }
	}
	set := func(name string) bool { v := get(name); return !IsNull(v) && v[0] != 'f' }
	many := func(name string) bool {
		if !set(name) {
			return false
		}
		f, ok := number(get(name))
		return !ok || !(f <= 1)
	}
	switch {
	case many("n"):
		return "n"
	case many("best_of"):
		return "best_of"
	case set("use_beam_search"):
		return "use_beam_search"
	case set("prompt_logprobs"):
		return "prompt_logprobs"
	case set("echo") && set("logprobs"):
		return "echo_logprobs"
	}
	if set("echo") {
		if f, ok := number(get("max_tokens")); ok && f == 0 {
			return "echo_max_tokens"
		}
	}
	if set("truncate_prompt_tokens") {
		if f, ok := number(get("truncate_prompt_tokens")); !ok || !(f >= 0) {
			return "truncate_prompt_tokens"
		}
	}
	if p.typed && truncates(b.Get("truncation")) {
		return "truncation"
	}
	return ""
}

// number reads a number as workers do, who take one in a string too.
func number(value []byte) (float64, bool) {
	if s, ok := Unquote(value); ok {
		value = []byte(s)
	}
	f, err := strconv.ParseFloat(string(value), 64)
	return f, err == nil
}
