package conf

import (
	"testing"
	"time"
)

func TestProfilesInheritRetries(t *testing.T) {
	c := mustParse(t, `[gateway.profiles.prefill.retry]
max_attempts = 1
[gateway.profiles.render.retry]
base_delay = "7ms"
max_delay = "8ms"
[gateway.retry]
max_attempts = 4
budget_ratio = 0
`+oneStep, "COORDINATOR_GATEWAY_RETRY_MAX_DELAY=3s", "COORDINATOR_GATEWAY_PROFILES_ENCODE_RETRY_MAX_ATTEMPTS=5",
		"COORDINATOR_GATEWAY_PROFILES_DECODE_RETRY_BUDGET_RATIO=1") // is no key
	all := Retry{MaxAttempts: 4, BaseDelay: 50 * time.Millisecond, MaxDelay: 3 * time.Second, MinRetries: 10}
	encode, prefill, render := all, all, all
	encode.MaxAttempts = 5
	prefill.MaxAttempts = 1
	render.BaseDelay, render.MaxDelay = 7*time.Millisecond, 8*time.Millisecond
	for profile, want := range map[string]Retry{"encode": encode, "prefill": prefill, "decode": all, "render": render, "other": all} {
		if got := c.Gateway.RetryOf(profile); got != want {
			t.Errorf("%s: got %+v, want %+v", profile, got, want)
		}
	}
}

// TestDelaysThatContradictEachOther are reported once, where one of them was set: the other may be a default, or the
// gateway's.
func TestDelaysThatContradictEachOther(t *testing.T) {
	tests := []struct{ text, want string }{
		{`gateway.retry.base_delay = "3s"`, "test.toml:1: gateway.retry.base_delay: must be at most max_delay (2s), got 3s"},
		{`gateway.retry.max_delay = "1ms"`, "test.toml:1: gateway.retry.max_delay: must be at least base_delay (50ms), got 1ms"},
		{`gateway.retry = { base_delay = "2s", max_delay = "1s" }`, "test.toml:1: gateway.retry.max_delay: must be at least base_delay (2s), got 1s"},
		{`gateway.profiles.decode.retry.max_delay = "1ms"`, "test.toml:1: gateway.profiles.decode.retry.max_delay: must be at least base_delay (50ms), got 1ms"},
		{"gateway.retry.max_delay = \"1s\"\ngateway.profiles.decode.retry.base_delay = \"2s\"",
			"test.toml:2: gateway.profiles.decode.retry.base_delay: must be at most max_delay (1s), got 2s"},
	}
	for _, test := range tests {
		_, err := Parse("test.toml", []byte(test.text+oneStep), nil)
		wantError(t, err, test.want)
	}
}
