package migrate

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
)

// sample is what the architecture of the llm-d coordinator documents.
const sample = `
log_level: 4
server:
  listen_addr: ":9000"
  read_timeout: 45s
  write_timeout: 120s
gateway:
  address: "http://gw:80"
  max_idle_conns_per_host: 100
  idle_conn_timeout: 90s
  timeout: 60s
pipeline:
  kv_connector: kv-nixl
  ec_connector: ec-nixl
  use_openai_format: false
  forward_response_headers: [x-llm-d-disagg-revision, x-slice]
  steps:
    - type: replace-media-urls
      params: { download_timeout: 5s, max_concurrent_downloads: 4, max_multimodal_entries: 20 }
    - type: render
      params: { address: "http://render:8080", timeout: 20s, max_total_tokens: 1000, max_total_placeholder_tokens: 500 }
    - type: conditional-decode
    - type: encode
      params: { max_parallel: 16, ec_connector: ec-nixl }
    - type: prefill
      params: { use_openai_format: true, kv_connector: kv-nixl }
    - type: decode
      params: { kv_connector: kv-nixl }
`

// converted converts a text, and loads what came of it.
func converted(t *testing.T, text string) (*conf.Config, *Result) {
	t.Helper()
	r, err := Convert("llm-d.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := conf.Parse("output", r.TOML, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.TOML)
	}
	return cfg, r
}

func TestWhatIsDocumentedIsTakenOver(t *testing.T) {
	cfg, r := converted(t, sample)
	if len(r.Warnings) != 0 {
		t.Errorf("%q", r.Warnings)
	}
	var got []string
	for _, step := range cfg.Pipeline.Steps {
		var err error
		switch step.Type {
		case "replace-media-urls":
			err = step.Params.Decode(&phases.MediaParams{})
		case "render":
			err = step.Params.Decode(&phases.RenderParams{})
		case "conditional-decode":
			err = step.Params.Decode(&phases.ConditionalParams{})
		case "encode":
			err = step.Params.Decode(&phases.EncodeParams{})
		case "prefill":
			err = step.Params.Decode(&phases.PrefillParams{})
		case "decode":
			err = step.Params.Decode(&phases.DecodeParams{})
		}
		if err != nil {
			t.Error(err)
		}
		got = append(got, step.Type)
	}
	for _, ch := range cfg.Changes() {
		got = append(got, ch.Key+" "+ch.Value)
	}
	want := []string{"replace-media-urls", "render", "conditional-decode", "encode", "prefill", "decode",
		`gateway.address "http://gw:80"`, "gateway.max_idle_conns_per_host 100", "log_level 4",
		`pipeline.ec_connector "ec-nixl"`, `pipeline.forward_response_headers ["x-llm-d-disagg-revision", "x-slice"]`, `pipeline.kv_connector "kv-nixl"`,
		"pipeline.steps[1].download_timeout 5s", "pipeline.steps[1].max_concurrent_downloads 4", "pipeline.steps[1].max_multimodal_entries 20",
		`pipeline.steps[2].address "http://render:8080"`, "pipeline.steps[2].max_total_placeholder_tokens 500", "pipeline.steps[2].max_total_tokens 1000", "pipeline.steps[2].timeout 20s",
		`pipeline.steps[4].ec_connector "ec-nixl"`, "pipeline.steps[4].max_parallel 16",
		`pipeline.steps[5].kv_connector "kv-nixl"`, "pipeline.steps[5].use_openai_format true",
		`pipeline.steps[6].kv_connector "kv-nixl"`,
		"pipeline.use_openai_format false", `server.listen_addr ":9000"`, "server.read_timeout 45s"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestUnknownKeysAreKeptAsComments, wherever they stand, and listed with their lines.
func TestUnknownKeysAreKeptAsComments(t *testing.T) {
	_, r := converted(t, `metrics: # of theirs
  addr: ":9090"
server:
  idle_timeout: 3m
  max_body: 10
gateway:
  timeout: 30
pipeline:
  mode: fast
  steps:
    - type: our-own
      params: {x: [1, 2]}
    - {params: {}}
    - type: render
      when: always
      params: {address: "http://r:1", tls: {insecure: true}, timeout: 10}
    - type: decode
      params: {use_openai_format: true, ec_connector: ec-nixl}
`)
	want := []string{
		"1: metrics: is not known; kept as a comment",
		"4: server.idle_timeout: is not known there, but there is a key of that name here: see that it means the same before you set it; kept as a comment",
		"5: server.max_body: is not known; kept as a comment",
		`7: gateway.timeout: is no duration with a unit, such as "30s": the default is used; kept as a comment`,
		"9: pipeline.mode: is not known; kept as a comment",
		"11: pipeline.steps: our-own is left out: a step of this type is not known; if it is one of your own write it as a phase (docs/adding-a-phase.md); kept as a comment",
		"13: pipeline.steps: a step is left out: it has no type; kept as a comment",
		"15: pipeline.steps.render: when: is not known; kept as a comment",
		`16: pipeline.steps.render.timeout: is no duration with a unit, such as "30s": the default is used; kept as a comment`,
		"16: pipeline.steps.render.tls: is not known there, but there is a key of that name here: see that it means the same before you set it; kept as a comment",
	}
	for i := range want {
		want[i] = "llm-d.yaml:" + want[i]
	}
	if !slices.Equal(r.Warnings, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(r.Warnings, "\n"), strings.Join(want, "\n"))
	}
	for _, line := range []string{"#   metrics:", `#       addr: ":9090"`, "#   idle_timeout: 3m", "#   timeout: 30", "#   mode: fast", "#   params: {x: [1, 2]}",
		"# use_openai_format is left out: it has no effect on a step of this type"} {
		if !strings.Contains(string(r.TOML), "\n"+line+"\n") {
			t.Errorf("want %q in\n%s", line, r.TOML)
		}
	}
	if strings.Contains(string(r.TOML), "of theirs") {
		t.Error("a comment, which may hold anything, was kept")
	}
}

// TestSecretsAreLeftOut of what is kept and of what is taken over.
func TestSecretsAreLeftOut(t *testing.T) {
	r, err := Convert("llm-d.yaml", []byte(`auth: {password: hunter2, api_key: [hunter2], session-token: {a: {b: hunter2}}, url: "redis://u:hunter2@h:1/0"}
gateway: {address: "http://me:hunter2@gw"}
pipeline:
  steps:
    - type: async-broker
      params: {redis_url: "redis://:hunter2@redis:6379/0", quota: {limits: {a: 5}}}
    - type: decode
`))
	if err != nil {
		t.Fatal(err)
	}
	all := string(r.TOML) + strings.Join(r.Warnings, "\n")
	if strings.Contains(all, "hunter2") {
		t.Error(all)
	}
	for _, want := range []string{`redis_url = "redis://(left-out)@redis:6379/0"`, "limits = { a = 5 }", "password: '(left out: it may be a secret)'", "env:NAME or file:PATH"} {
		if !strings.Contains(all, want) {
			t.Errorf("want %s in\n%s", want, all)
		}
	}
}

// TestAnchorsAndLooseValues: YAML is read as they read it.
func TestAnchorsAndLooseValues(t *testing.T) {
	cfg, r := converted(t, `
base: &base {idle_conn_timeout: 10s, timeout: 5s}
Gateway:
  <<: *base
  Timeout: &t 20m
server: {listen_addr: ":1", read_timeout: *t}
log_level: "3"
pipeline: {use_openai_format: "false", steps: [{type: render, params: {address: "http://r"}}, {type: decode}]}
`)
	if cfg.Gateway.IdleConnTimeout != 10*time.Second || cfg.Gateway.Timeout != 20*time.Minute || cfg.Server.ReadTimeout != 20*time.Minute ||
		cfg.LogLevel != 3 || cfg.Pipeline.UseOpenAIFormat {
		t.Errorf("%s", r.TOML)
	}
	if d := cfg.Gateway.TimeoutOf("decode"); d != 20*time.Minute {
		t.Errorf("decode has %v, less than all legs had", d)
	}
}

func TestWhatIsLeftOutIsSaidIfDefaultsDiffer(t *testing.T) {
	_, r := converted(t, "pipeline: {steps: [{type: render, params: {address: \"http://r\"}}, {type: decode}]}")
	for _, want := range []string{"# max_idle_conns_per_host: the default is 100 there, here 0", "# timeout: the default here is 30s"} {
		if !strings.Contains(string(r.TOML), "\n"+want) {
			t.Errorf("want %q in\n%s", want, r.TOML)
		}
	}
}

// TestDefaultsInComments are the defaults.
func TestDefaultsInComments(t *testing.T) {
	file := string(conf.Annotated)
	for _, keys := range stepKeys {
		for _, k := range keys {
			for _, note := range k.absent {
				m := regexp.MustCompile(`^(\w+): the default here is (\w+)`).FindStringSubmatch(note)
				if m == nil || !regexp.MustCompile(`(?m)^`+m[1]+` += "?`+m[2]+`"? `).MatchString(file) {
					t.Errorf("%q is not what conf/coordinator.toml says", note)
				}
			}
		}
	}
	d := conf.Default()
	if d.Server.MaxRequestBodySize != 64 || d.Gateway.TimeoutOf("decode") != decodeDefault || d.Admin.ListenAddr != "127.0.0.1:9090" || d.Gateway.MaxIdleConnsPerHost != 0 {
		t.Error("a default has changed that is in a comment")
	}
}

func TestNoConfiguration(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "llm-d.yaml: there is nothing in it"},
		{"- a\n- b\n", "llm-d.yaml: no configuration"},
		{"a: [", "llm-d.yaml: yaml:"},
		{"a: 1\na: 2\n", `mapping key "a" already defined`},
		{"a: &a [*a]\n", "anchor 'a' value contains itself"},
	} {
		if _, err := Convert("llm-d.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
	_, r := converted(t, sample+"\n---\nmore: 1\n")
	if want := []string{"llm-d.yaml: only the first document in it is read"}; !slices.Equal(r.Warnings, want) {
		t.Errorf("%q", r.Warnings)
	}
}

// TestCommentsAreNothingElse: whatever is in a YAML, none of it becomes a setting.
func TestCommentsAreNothingElse(t *testing.T) {
	nasty := "x: |\n  a\n  log_level = 5\n\"k\\nlog_level = 5\": \"v\\r\\nlog_level = 5\\u0085\\u2028\"\n"
	cfg, r := converted(t, nasty+sample)
	if cfg.LogLevel != 4 {
		t.Errorf("%s", r.TOML)
	}
	for _, w := range r.Warnings {
		if strings.ContainsAny(w, "\r\n") {
			t.Errorf("%q is more than one line", w)
		}
	}
}

// FuzzConvert: no text makes a panic, nor a TOML that cannot be read for another
// reason than a value that is not possible.
func FuzzConvert(f *testing.F) {
	f.Add(sample)
	f.Add("server: {listen_addr: \"\\x7f\", read_timeout: !!binary x}")
	f.Add("a: &a {b: 1}\nserver: {<<: [*a, *a], <<: *a}\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Convert("llm-d.yaml", []byte(text))
		if err != nil {
			return
		}
		_, err = conf.Parse("output", r.TOML, nil)
		if bad := (*conf.Error)(nil); errors.As(err, &bad) && bad.Key == "" {
			t.Errorf("%v\n%q", err, r.TOML) // it is no TOML
		}
	})
}
