package conf

import (
	"slices"
	"strings"
	"testing"
)

func replace(text, old, new string) string { return strings.Replace(text, old, new, 1) }

func TestDifferences(t *testing.T) {
	const text = `
log_level = 3
[server]
passthrough_routes = ["/a"]
[gateway]
headers = { Authorization = "secret-1", X-Team = "a" }
profiles.decode.timeout = "9m"
[[pipeline.steps]]
type = "render"
params = { address = "http://render", timeout = "9s" }
[[pipeline.steps]]
type = "decode"
params = { count = 2 }
`
	tests := []struct {
		name    string
		text    string
		environ []string
		want    []string
	}{
		{"none", text, nil, nil},
		{"spelt otherwise", replace(text, `"9m"`, `"540s"`), nil, nil},
		{"another source", replace(text, "log_level = 3", ""), []string{"COORDINATOR_LOG_LEVEL=3"}, nil},
		{"a default said", replace(text, "[server]", "[server]\nread_timeout = \"30s\""), nil, nil},
		{"a value", replace(text, "log_level = 3", "log_level = 4"), nil, []string{"log_level"}},
		{"one left out", replace(text, "log_level = 3", ""), nil, []string{"log_level"}},
		{"a list", replace(text, `["/a"]`, `["/a", "/b"]`), nil, []string{"server.passthrough_routes"}},
		{"a profile's own", replace(text, `profiles.decode.timeout = "9m"`, ""), nil, []string{"gateway.profiles.decode.timeout"}},
		{"headers", replace(text, `headers = { Authorization = "secret-1", X-Team = "a" }`, `headers = { Authorization = "secret-2", X-Org = "a" }`), nil,
			[]string{"gateway.headers.Authorization", "gateway.headers.X-Org", "gateway.headers.X-Team"}},
		{"params", replace(text, `timeout = "9s"`, `timeout = "8s", ratio = 0.5`), []string{"COORDINATOR_STEPS_DECODE_COUNT=3"},
			[]string{"pipeline.steps[1].ratio", "pipeline.steps[1].timeout", "pipeline.steps[2].count"}},
		{"one step less", replace(text, "[[pipeline.steps]]\ntype = \"decode\"\nparams = { count = 2 }", ""), nil, []string{"pipeline.steps"}},
		{"another step", replace(text, `type = "render"`, `type = "encode"`), nil, []string{"pipeline.steps"}},
		{"one step before, and a param", replace(replace(text, "[[pipeline.steps]]\ntype = \"render\"", "[[pipeline.steps]]\ntype = \"media\"\n[[pipeline.steps]]\ntype = \"render\""),
			"count = 2", "count = 1"), nil, []string{"pipeline.steps", "pipeline.steps[3].count"}},
	}
	// decoded is a configuration of which a coordinator has been built.
	decoded := func(t *testing.T, text string, environ []string) *Config {
		c := mustParse(t, text, environ...)
		for _, step := range c.Pipeline.Steps {
			into := defaultSample()
			if err := step.Params.Decode(&into); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := decoded(t, tt.text, tt.environ).Differences(decoded(t, text, nil)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("not decoded", func(t *testing.T) {
		now := mustParse(t, replace(text, "count = 2", "count = 3"))
		if got, want := now.Differences(mustParse(t, text)), []string{"pipeline.steps[2].params"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("inherited", func(t *testing.T) {
		a, b := mustParse(t, text), mustParse(t, text)
		for i, c := range []*Config{a, b} {
			into := defaultSample()
			into.Count = i + 5
			if err := c.Pipeline.Steps[0].Params.Decode(&into); err != nil {
				t.Fatal(err)
			}
			into = defaultSample()
			if err := c.Pipeline.Steps[1].Params.Decode(&into); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.Differences(a); len(got) != 0 {
			t.Errorf("a default that is another's key counts as the step's: %q", got)
		}
	})
}
