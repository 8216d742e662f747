package conf

import (
	"reflect"
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	c := mustParse(t, `log_format = "json" # as it is
[server]
idle_timeout = "90s"
drain_delay = "1s"
[gateway]
profiles.decode.timeout = "10m"
profiles.prefill.breaker.min_requests = 20
[[pipeline.steps]]
type = "render"
[pipeline.steps.params]
address = "http://render"
timeout = "90s"
domains = ["a", "b"]
count = 5
[[pipeline.steps]]
type = "decode"
params.count = 1
`, "COORDINATOR_SERVER_DRAIN_DELAY=1500ms", "COORDINATOR_STEPS_RENDER_RATIO=0.5")
	if err := c.Override("log_level", "4", "flag -v"); err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{"gateway.profiles.prefill.breaker.min_requests", "20", "test.toml:7"},
		{"log_level", "4", "flag -v"},
		{"server.drain_delay", "1.5s", "environment COORDINATOR_SERVER_DRAIN_DELAY"},
		{"server.idle_timeout", "1m30s", "test.toml:3"},
	}
	check := func() {
		t.Helper()
		if got := c.Changes(); !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%v\nwant\n%v", got, want)
		}
	}
	check()

	into := defaultSample()
	if err := c.Pipeline.Steps[0].Params.Decode(&into); err != nil {
		t.Fatal(err)
	}
	want = append(want[:2:2], append([]Change{
		{"pipeline.steps[1].address", `"http://render"`, "test.toml:11"},
		{"pipeline.steps[1].domains", `["a", "b"]`, "test.toml:13"},
		{"pipeline.steps[1].ratio", "0.5", "environment COORDINATOR_STEPS_RENDER_RATIO"},
		{"pipeline.steps[1].timeout", "1m30s", "test.toml:12"},
	}, want[2:]...)...)
	check()

	// To decode once more, as a reload or a test may, lists nothing twice.
	into = defaultSample()
	if err := c.Pipeline.Steps[0].Params.Decode(&into); err != nil {
		t.Fatal(err)
	}
	check()
}

// TestSettings are all keys, each once, and no secret is among the values.
func TestSettings(t *testing.T) {
	c := mustParse(t, `log_format = "json"
[admin]
token = "the-secret"
[gateway]
headers = { Authorization = "Bearer the-secret", X-Key = "env:KEY" }
[[pipeline.steps]]
type = "render"
[pipeline.steps.params]
address = "http://render"
[[pipeline.steps]]
type = "decode"
`, "COORDINATOR_SERVER_DRAIN_DELAY=1500ms")
	into := defaultSample()
	if err := c.Pipeline.Steps[0].Params.Decode(&into); err != nil {
		t.Fatal(err)
	}
	c.Server.MaxRequestBodySize = 1
	got := map[string]Change{}
	for _, s := range c.Settings() {
		if _, ok := got[s.Key]; ok {
			t.Errorf("%s is there twice", s.Key)
		}
		if strings.Contains(s.Value, "the-secret") {
			t.Errorf("%s shows %s", s.Key, s.Value)
		}
		got[s.Key] = s
	}
	for _, want := range []Change{
		{"log_format", `"json"`, "test.toml:1"},
		{"log_level", "2", "default"},
		{"admin.token", "(set)", "test.toml:3"},
		{"gateway.headers.Authorization", "(set)", "test.toml:5"},
		{"gateway.headers.X-Key", `"env:KEY"`, "test.toml:5"},
		{"server.drain_delay", "1.5s", "environment COORDINATOR_SERVER_DRAIN_DELAY"},
		{"server.max_request_body_size", "1", "program"},
		{"pipeline.steps[1].type", `"render"`, "test.toml:6"},
		{"pipeline.steps[1].address", `"http://render"`, "test.toml:9"},
		{"pipeline.steps[1].timeout", into.Timeout.String(), "default"},
		{"pipeline.steps[2].type", `"decode"`, "test.toml:10"},
	} {
		if got[want.Key] != want {
			t.Errorf("got %v, want %v", got[want.Key], want)
		}
	}
}

func TestChangesOfDefault(t *testing.T) {
	c := Default()
	if got := c.Changes(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	c.Server.MaxRequestBodySize = 1
	if got, want := c.Changes(), []Change{{"server.max_request_body_size", "1", "program"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOverride(t *testing.T) {
	tests := []struct{ key, value, want string }{
		{"log_level", "3", ""},
		{"gateway.profiles.render.breaker.enabled", "false", ""},
		{"log_level", "6", "flag -v: log_level: must be from 1 to 5, got 6"},
		{"log_level", "high", `flag -v: log_level: want an integer, got string "high"`},
		{"log_levl", "3", "flag -v: log_levl: unknown key (did you mean log_level?)"},
		{"server", "3", "flag -v: server: unknown key"},
		{"pipeline.steps", "3", "flag -v: pipeline.steps: unknown key"},
	}
	for _, test := range tests {
		t.Run(test.key+"="+test.value, func(t *testing.T) {
			c := mustParse(t, "log_level = 1"+oneStep)
			before := c.Changes()
			err := c.Override(test.key, test.value, "flag -v")
			if test.want == "" {
				got := c.Changes()
				if err != nil || got[0] != (Change{test.key, test.value, "flag -v"}) {
					t.Errorf("changes are %v, error %v", got, err)
				}
				return
			}
			wantError(t, err, test.want)
			if got := c.Changes(); !reflect.DeepEqual(got, before) || c.LogLevel != 1 {
				t.Errorf("left %v", got)
			}
		})
	}
}

// A default may be overridden too, also on a Config that was never parsed.
func TestOverrideDefault(t *testing.T) {
	c := Default()
	if err := c.Override("log_level", "5", "flag -v"); err != nil || c.LogLevel != 5 {
		t.Errorf("level %d, %v", c.LogLevel, err)
	}
}
