package conf

import (
	"regexp"
	"strings"
	"testing"
)

var placed = regexp.MustCompile(`^(fuzz\.toml:[1-9][0-9]*|environment COORDINATOR_[A-Z_]+): .`)

// FuzzParse holds the loader to this: whatever file and environment are, it does not panic, and each error says
// where it is, on a line of its own.
func FuzzParse(f *testing.F) {
	f.Add(string(Annotated), "LOG_LEVEL", "4")
	f.Add("log_level = 9\nserver = 1\n[gateway]\ntimeout = 3\n"+oneStep+"params = { x = 1 }", "STEPS_DECODE_COUNT", "x")
	f.Add("pipeline.steps = [{ type = 'a', params = { domains = [1] } }]", "STEPS_A_DOMAINS", "a, b")
	f.Add("gateway.breaker.failure_ratio = -nan\nactors.pools.decode.size = 0x7fffffffffffffff"+oneStep, "GATEWAY_ADDRESS", "http://a b")
	f.Fuzz(func(t *testing.T, text, name, value string) {
		c, err := Parse("fuzz.toml", []byte(text), []string{keyPrefix + name + "=" + value})
		checkPlaces(t, err)
		if err != nil {
			return
		}
		for _, step := range c.Pipeline.Steps {
			into := defaultSample()
			checkPlaces(t, step.Params.Decode(&into))
			checkPlaces(t, step.Params.Errorf("count", "must be even"))
		}
		for _, change := range c.Changes() {
			if !placed.MatchString(change.Origin + ": x") {
				t.Errorf("%s comes from %q", change.Key, change.Origin)
			}
		}
		if err := c.Override("log_level", "2", "flag -v"); err != nil {
			t.Error(err)
		}
	})
}

func checkPlaces(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !placed.MatchString(line) {
			t.Errorf("no place: %q", line)
		}
	}
}
