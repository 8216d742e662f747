package migrate

import (
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
)

// asyncSample has all that the step async-broker can have.
const asyncSample = `
pipeline:
  steps:
    - type: async-broker
      params:
        redis_url: redis://redis:6379/1
        mode_header: X-AP-Mode
        tenant_header: X-Team
        timeout_header: X-Request-Timeout-Seconds
        routes:
          - {model: big, tenant: "the acme", queue: q-big, tier: batch}
          - model: small
            tier: interactive
        default_queue: q
        default_tier: async
        objectives:
          interactive: {reserved: gold, overflow: ""}
          the rest: {overflow: lead}
        objective_header: x-objective
        fairness_header: x-fairness
        quota:
          prefix: "q:"
          attribute: team
          limits: {acme: 5, "the other": "0"}
          window_seconds: 60
        timeouts:
          wait: {default_seconds: 30, max_seconds: 300}
          enqueue: {default_seconds: 600}
        wait_cap_seconds: 20
        fetch_grace_seconds: null
        wakeup_mode: poll
        forward_headers: [x-a, x-b]
        kv_connector: kv-nixl
    - type: decode
`

func TestAsyncBrokerIsTakenOver(t *testing.T) {
	cfg, r := converted(t, asyncSample)
	if len(r.Warnings) != 0 {
		t.Errorf("%q", r.Warnings)
	}
	step := cfg.Pipeline.Steps[0]
	p := phases.AsyncBrokerParams{}
	if err := step.Params.Decode(&p); step.Type != "async-broker" || err != nil {
		t.Fatalf("%s: %v\n%s", step.Type, err, r.TOML)
	}
	var got []string
	for _, ch := range cfg.Changes() {
		got = append(got, strings.TrimPrefix(ch.Key, "pipeline.steps[1].")+" "+ch.Value)
	}
	want := []string{
		`default_queue "q"`,
		`default_tier "async"`,
		`fairness_header "x-fairness"`,
		`forward_headers ["x-a", "x-b"]`,
		`mode_header "X-AP-Mode"`,
		`objective_header "x-objective"`,
		`objectives { interactive = { reserved = "gold" }, "the rest" = { overflow = "lead" } }`,
		`quota.attribute "team"`,
		`quota.limits { acme = 5, "the other" = 0 }`,
		`quota.prefix "q:"`,
		`quota.window_seconds 60`,
		`redis_url (set)`,
		`routes [{ model = "big", tenant = "the acme", queue = "q-big", tier = "batch" }, { model = "small", tier = "interactive" }]`,
		`tenant_header "X-Team"`,
		`timeout_header "X-Request-Timeout-Seconds"`,
		`timeouts.enqueue.default_seconds 600`,
		`timeouts.wait.default_seconds 30`,
		`timeouts.wait.max_seconds 300`,
		`wait_cap_seconds 20`,
		`wakeup_mode "poll"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAsyncBrokerIsNotTakenOverHalf: a value of which a part is not known, or wrong, is
// kept as a comment as a whole, for a part of it would mean something else.
func TestAsyncBrokerIsNotTakenOverHalf(t *testing.T) {
	_, r := converted(t, `pipeline:
  steps:
    - type: async-broker
      params:
        redis_url: redis://redis
        routes: [{model: m, header: h}]
        objectives: {a: 1}
        quota: {limits: {a: many}}
        timeouts: {passthrough: {default_seconds: 1}}
        forward_headers: x-a
        timeout: 3
    - type: decode
`)
	want := []string{
		`6: pipeline.steps.async-broker.routes: has an element that has a key "header" that is not known: the default is used; kept as a comment`,
		`7: pipeline.steps.async-broker.objectives: "a" is no table: the default is used; kept as a comment`,
		`8: pipeline.steps.async-broker.quota: "limits" "a" is no whole number: the default is used; kept as a comment`,
		`9: pipeline.steps.async-broker.timeouts: has a key "passthrough" that is not known: the default is used; kept as a comment`,
		`10: pipeline.steps.async-broker.forward_headers: is no list: the default is used; kept as a comment`,
		`11: pipeline.steps.async-broker.timeout: is not known; kept as a comment`,
	}
	for i := range want {
		want[i] = "llm-d.yaml:" + want[i]
	}
	if !slices.Equal(r.Warnings, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(r.Warnings, "\n"), strings.Join(want, "\n"))
	}
}
