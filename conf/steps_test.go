package conf

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// sample is the params of a phase that does not exist, with something of each type.
type sample struct {
	Address string        `toml:"address"`
	Timeout time.Duration `toml:"timeout"`
	Count   int           `toml:"count"`
	Small   int8          `toml:"small"`
	Big     int64         `toml:"big"`
	Ratio   float64       `toml:"ratio"`
	On      bool          `toml:"on"`
	Domains []string      `toml:"domains"`
	Limit   *int          `toml:"limit"`
	Retry   sampleRetry   `toml:"retry"`
	Untyped string
	Dashed  string `toml:"-"`
}

type sampleRetry struct {
	Max int `toml:"max"`
}

func defaultSample() sample {
	return sample{Address: "http://default", Count: 5, Domains: []string{"a"}}
}

// decodeStep decodes the params of the first step of a file that has no other faults.
func decodeStep(t *testing.T, text string, environ ...string) (sample, error) {
	t.Helper()
	into := defaultSample()
	err := mustParse(t, text, environ...).Pipeline.Steps[0].Params.Decode(&into)
	return into, err
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name, text string
		environ    []string
		want       func(s *sample)
	}{
		{"nothing set", oneStep, nil, func(*sample) {}},
		{"empty params", oneStep + "params = {}", nil, func(*sample) {}},
		{"every type", oneStep + `[pipeline.steps.params]
timeout = "3s"
count = 0
small = -128
big = 9_000_000_000
ratio = 2
on = true
domains = ["b", "c"]
limit = 0
retry.max = 4`, nil, func(s *sample) {
			*s = sample{"http://default", 3 * time.Second, 0, -128, 9_000_000_000, 2, true, []string{"b", "c"}, new(0),
				sampleRetry{4}, "", ""}
		}},
		{"empty list", oneStep + "params = { domains = [] }", nil, func(s *sample) { s.Domains = []string{} }},
		{"every type from the environment", oneStep, []string{
			"COORDINATOR_STEPS_DECODE_ADDRESS=http://env",
			"COORDINATOR_STEPS_DECODE_TIMEOUT=1h",
			"COORDINATOR_STEPS_DECODE_COUNT=-6",
			"COORDINATOR_STEPS_DECODE_SMALL=7",
			"COORDINATOR_STEPS_DECODE_BIG=8",
			"COORDINATOR_STEPS_DECODE_RATIO=0.5",
			"COORDINATOR_STEPS_DECODE_ON=true",
			"COORDINATOR_STEPS_DECODE_DOMAINS= b.example ,c.example",
			"COORDINATOR_STEPS_DECODE_LIMIT=9",
			"COORDINATOR_STEPS_DECODE_RETRY_MAX=10",
		}, func(s *sample) {
			*s = sample{"http://env", time.Hour, -6, 7, 8, 0.5, true, []string{"b.example", "c.example"}, new(9), sampleRetry{10}, "", ""}
		}},
		{"environment over file", oneStep + `params = { address = "http://file", domains = ["b"] }`,
			[]string{"COORDINATOR_STEPS_DECODE_ADDRESS=http://env", "COORDINATOR_STEPS_DECODE_DOMAINS="},
			func(s *sample) { s.Address, s.Domains = "http://env", []string{} }},
		{"environment of a type with a dash", "[[pipeline.steps]]\ntype = \"replace-media-urls\"",
			[]string{"COORDINATOR_STEPS_REPLACE_MEDIA_URLS_COUNT=1", "COORDINATOR_STEPS_DECODE_COUNT=2"},
			func(s *sample) { s.Count = 1 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := decodeStep(t, test.text, test.environ...)
			if err != nil {
				t.Fatal(err)
			}
			want := defaultSample()
			test.want(&want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestDecodeFaults(t *testing.T) {
	tests := []struct {
		name, text string
		environ    []string
		want       string
	}{
		{"unknown and mistyped", oneStep + `[pipeline.steps.params]
adress = "http://x"
kv_connector = "kv-nixl"
Count = 1
timeout = 3
small = 128
domains = [
  "a",
  7, true]
retry = { mix = 1 }
Untyped = "x"
"-" = "x"
`, nil, `test.toml:5: pipeline.steps[1] (decode): adress: unknown key (did you mean address?)
test.toml:6: pipeline.steps[1] (decode): kv_connector: unknown key
test.toml:7: pipeline.steps[1] (decode): Count: unknown key (did you mean count?)
test.toml:8: pipeline.steps[1] (decode): timeout: want a duration such as "30s", got integer 3
test.toml:9: pipeline.steps[1] (decode): small: 128 is out of range
test.toml:12: pipeline.steps[1] (decode): domains[2]: want a string, got integer 7
test.toml:12: pipeline.steps[1] (decode): domains[3]: want a string, got boolean true
test.toml:13: pipeline.steps[1] (decode): retry.mix: unknown key (did you mean max?)
test.toml:14: pipeline.steps[1] (decode): Untyped: unknown key
test.toml:15: pipeline.steps[1] (decode): -: unknown key`},
		{"inline", oneStep + "params = {\n on = 1, domains = \"a\",\n timeout = \"-1s\" }", nil,
			`test.toml:5: pipeline.steps[1] (decode): domains: want a list of strings, got string "a"
test.toml:5: pipeline.steps[1] (decode): on: want true or false, got integer 1
test.toml:6: pipeline.steps[1] (decode): timeout: must not be negative, got -1s`},
		{"environment", oneStep + "params.count = true",
			[]string{"COORDINATOR_STEPS_DECODE_TIMEOUT=soon", "COORDINATOR_STEPS_DECODE_SMALL=300"},
			`test.toml:4: pipeline.steps[1] (decode): count: want an integer, got boolean true
environment COORDINATOR_STEPS_DECODE_SMALL: pipeline.steps[1] (decode): small: 300 is out of range
environment COORDINATOR_STEPS_DECODE_TIMEOUT: pipeline.steps[1] (decode): timeout: want a duration such as "30s", got string "soon"`},
		{"long text", oneStep + "params.timeout = \"0123456789012345678901234567890123456789012345678901234567890123456789\"", nil,
			`test.toml:4: pipeline.steps[1] (decode): timeout: want a duration such as "30s", ` +
				`got string "012345678901234567890123456789012345678901234567890123456789"…`},
		{"odd type", "[[pipeline.steps]]\ntype = \"a\\nb\"\nparams.x = 1", nil,
			`test.toml:3: pipeline.steps[1] ("a\nb"): x: unknown key`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := decodeStep(t, test.text, test.environ...)
			wantError(t, err, test.want)
		})
	}
}

// The library reports the keys of sibling tables as one; ours must be told apart.
func TestSiblingSteps(t *testing.T) {
	c := mustParse(t, `[[pipeline.steps]]
type = "render"
[pipeline.steps.params]
address = "http://one"

[[pipeline.steps]]
type = "prefill"

[[pipeline.steps]]
type = "render"
[pipeline.steps.params]
count = 2
kv_conector = "kv-nixl"

[[pipeline.steps]]
type = "decode"
[pipeline.steps.params]
count = 3
`, "COORDINATOR_STEPS_RENDER_BIG=4")
	steps := c.Pipeline.Steps
	var types []string
	var lines []int
	for _, s := range steps {
		types, lines = append(types, s.Type), append(lines, s.Line)
	}
	if want := []string{"render", "prefill", "render", "decode"}; !reflect.DeepEqual(types, want) {
		t.Errorf("types are %v", types)
	}
	if want := []int{1, 6, 9, 15}; !reflect.DeepEqual(lines, want) {
		t.Errorf("lines are %v", lines)
	}

	type params struct {
		Address     string `toml:"address"`
		Count       int    `toml:"count"`
		Big         int    `toml:"big"`
		KVConnector string `toml:"kv_connector"`
	}
	var got [4]params
	for i, want := range []string{"", "", `test.toml:13: pipeline.steps[3] (render): kv_conector: unknown key (did you mean kv_connector?)`, ""} {
		err := steps[i].Params.Decode(&got[i])
		if want != "" {
			wantError(t, err, want)
		} else if err != nil {
			t.Error(err)
		}
	}
	want := [4]params{{Address: "http://one", Big: 4}, {}, {Count: 2, Big: 4}, {Count: 3}}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParamsErrorf(t *testing.T) {
	c := mustParse(t, "\n\n[[pipeline.steps]]\ntype = \"prefill\"\n[pipeline.steps.params]\ncount = 1\nretry.max = 2\n",
		"COORDINATOR_STEPS_PREFILL_TIMEOUT=3s")
	p := c.Pipeline.Steps[0].Params
	if err := p.Decode(new(sample)); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"count":     "test.toml:6: pipeline.steps[1] (prefill): count: must be even, got 1",
		"retry.max": "test.toml:7: pipeline.steps[1] (prefill): retry.max: must be even, got 1",
		"timeout":   "environment COORDINATOR_STEPS_PREFILL_TIMEOUT: pipeline.steps[1] (prefill): timeout: must be even, got 1",
		"address":   "test.toml:3: pipeline.steps[1] (prefill): address: must be even, got 1",
	}
	for key, want := range tests {
		wantError(t, p.Errorf(key, "must be even, got %d", 1), want)
	}
}

func TestDecodeIntoAnythingElse(t *testing.T) {
	p := mustParse(t, oneStep).Pipeline.Steps[0].Params
	for _, into := range []any{nil, 1, sample{}, new(int), (*sample)(nil)} {
		if err := p.Decode(into); err == nil {
			t.Errorf("decoded into %T", into)
		}
	}
	odd := struct {
		Value complex64 `toml:"count"`
	}{}
	p = mustParse(t, oneStep+"params.count = 1").Pipeline.Steps[0].Params
	wantError(t, p.Decode(&odd), "test.toml:4: pipeline.steps[1] (decode): count: a setting cannot be of Go type complex64")
}

func TestNilParams(t *testing.T) {
	var p *Params
	got := defaultSample()
	if err := p.Decode(&got); err != nil || !reflect.DeepEqual(got, defaultSample()) {
		t.Errorf("got %+v, %v", got, err)
	}
	wantError(t, p.Errorf("address", "required"), "default: address: required")
}

func TestParamsWithAnotherValue(t *testing.T) {
	c, err := Parse("c.toml", []byte("[[pipeline.steps]]\ntype = \"a-b\"\n[pipeline.steps.params]\nurl = \"env:X\"\ncount = 1\n"),
		[]string{"COORDINATOR_STEPS_A_B_URL=env:Y", "COORDINATOR_STEPS_A_B_COUNT=2"})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pipeline.Steps[0].Params
	var got struct {
		URL   string `toml:"url,secret"`
		Count int    `toml:"count"`
	}
	if err := p.With("url", "other").Decode(&got); err != nil || got.URL != "other" || got.Count != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := p.Decode(&got); err != nil || got.URL != "env:Y" {
		t.Errorf("the params themselves: %+v, %v", got, err)
	}
}

// TestTablesInParams: their values, the lines of what is wrong in them, and how they
// are shown. What is secret is not.
func TestTablesInParams(t *testing.T) {
	type route struct {
		Model string `toml:"model"`
		Tier  string `toml:"tier"`
	}
	type params struct {
		URL    string           `toml:"url,secret"`
		Routes []route          `toml:"routes"`
		Tiers  map[string]route `toml:"tiers"`
		Quota  struct {
			Limits map[string]int64 `toml:"limits"`
		} `toml:"quota"`
	}
	parse := func(text string, environ ...string) *Params {
		t.Helper()
		c, err := Parse("c.toml", []byte("[[pipeline.steps]]\ntype = \"a\"\n[pipeline.steps.params]\n"+text), environ)
		if err != nil {
			t.Fatal(err)
		}
		return c.Pipeline.Steps[0].Params
	}
	const good = "url = \"redis://:secret@h\"\nroutes = [{ model = \"m\" }, { tier = \"t\" }]\nquota.limits = { acme = 8, \"b c\" = 0 }\n[pipeline.steps.params.tiers.gold]\ntier = \"first\"\n"
	p := parse(good)
	var got params
	if err := p.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Routes, []route{{Model: "m"}, {Tier: "t"}}) || got.Quota.Limits["acme"] != 8 || got.Tiers["gold"].Tier != "first" {
		t.Errorf("%+v", got)
	}
	shown := map[string]string{}
	for _, ch := range p.changes {
		shown[ch.Key] = ch.Value
	}
	const at = "pipeline.steps[1]."
	for key, want := range map[string]string{at + "url": "(set)", at + "routes": `[{ model = "m" }, { tier = "t" }]`,
		at + "quota.limits": `{ acme = 8, "b c" = 0 }`, at + "tiers": `{ gold = { tier = "first" } }`} {
		if shown[key] != want {
			t.Errorf("%s is shown as %s, want %s", key, shown[key], want)
		}
	}
	if err := p.Errorf("quota.limits.acme", "no"); !strings.HasPrefix(err.Error(), "c.toml:6: ") {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"routes = [{ model = \"m\" },\n{ modle = \"m\" }]": "c.toml:5: pipeline.steps[1] (a): routes[2].modle: unknown key",
		"routes = [1]":                    "c.toml:4: pipeline.steps[1] (a): routes: want a list of tables, got an array",
		"quota.limits = { acme = \"8\" }": "c.toml:4: pipeline.steps[1] (a): quota.limits.acme: want an integer, got string",
		"tiers.gold.colour = \"x\"":       "c.toml:4: pipeline.steps[1] (a): tiers.gold.colour: unknown key",
		"tiers = 1":                       "c.toml:4: pipeline.steps[1] (a): tiers: want a table, got integer 1",
	} {
		if err := parse(text).Decode(&params{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := parse("", "COORDINATOR_STEPS_A_ROUTES=x").Decode(&params{}); err == nil || !strings.Contains(err.Error(), "in the file only") {
		t.Error(err)
	}
	same, other := parse(good), parse(strings.Replace(good, "8", "9", 1))
	for _, q := range []*Params{same, other} {
		if err := q.Decode(&params{}); err != nil {
			t.Fatal(err)
		}
	}
	if d := same.differences(p); len(d) != 0 {
		t.Errorf("equal params differ in %v", d)
	}
	if d := other.differences(p); !reflect.DeepEqual(d, []string{at + "quota.limits"}) {
		t.Errorf("they differ in %v", d)
	}
}
