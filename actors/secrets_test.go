package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Whatever goes wrong, nothing that a client sent is logged.
func TestNothingOfARequestIsLogged(t *testing.T) {
	const secret = "top-secret-prompt"
	text := []byte(`{"model":"m","prompt":"` + secret + `"}`)
	body, err := wire.ParseBody(text)
	if err != nil {
		t.Fatal(err)
	}
	var out logged
	rg := setup{pools: map[string]PoolSettings{"a": {1, 1}, "b": {1, 1}}, log: out.logger()}.engine(t)
	leak := func(context.Context) (phases.Result, error) { panic(fmt.Sprintf("cannot do %s", text)) }
	wakes := make(chan func(phases.Result, error), 9)
	for name, line := range map[string][]phases.Phase{
		"success":       {one("a", func(context.Context) (phases.Result, error) { return text, nil })},
		"failure":       {one("a", func(context.Context) (phases.Result, error) { return text, errors.New(string(text)) })},
		"panic":         {one("a", leak)},
		"panic, held":   {one("b", nothing, "a"), one("a", leak)},
		"panic, error":  {one("a", func(context.Context) (phases.Result, error) { panic(errors.New(string(text))) })},
		"panic, value":  {one("a", func(context.Context) (phases.Result, error) { panic(body) })},
		"panic in Plan": {&fake{name: "a", plan: func(r *phases.Request) (phases.Plan, error) { panic(string(text)) }}},
		"panic in Join": {&fake{name: "a", plan: one("a", nothing).plan,
			join: func(*phases.Request, []phases.Result) (phases.Verdict, error) { panic(text) }}},
		"panic in Release": {&fake{name: "a", release: func(*phases.Request) []phases.Task { panic(string(text)) }}},
		"panic in Admit":   {&fake{name: "a", admit: func(*phases.Request) error { panic(string(text)) }}},
		"panic, detached":  {&fake{name: "a", release: func(*phases.Request) []phases.Task { return []phases.Task{{Pool: "b", Run: leak}} }}},
		"dropped": {&fake{name: "a", release: func(*phases.Request) []phases.Task {
			return []phases.Task{{Pool: "b", Run: leak}, {Pool: "b", Run: leak}, {Pool: "b", Run: leak}, {Pool: "x", Run: leak}}
		}}},
		"again": {&fake{name: "a", plan: one("a", nothing).plan, join: func(*phases.Request, []phases.Result) (phases.Verdict, error) {
			return phases.Verdict{Again: secret}, nil
		}}},
		"cancelled": {one("a", newSlow().run)},
		"dead letter": {&fake{name: "a", plan: plans(phases.Plan{Tasks: []phases.Task{{
			Await: func(_ context.Context, wake func(phases.Result, error)) { wakes <- wake }}}})}},
	} {
		rg.Swap(phases.PipelineOf(line...))
		r := &phases.Request{ID: "request-1", Body: body, Out: phases.NewResponse()}
		ctx, cancel := context.WithCancel(t.Context())
		if err := rg.Start(ctx, r); err == nil {
			if name == "cancelled" || name == "dead letter" {
				cancel()
			}
			_ = rg.outcome(r)
		}
		cancel()
		if name == "dead letter" {
			(<-wakes)(text, errors.New(string(text)))
		}
		rg.allBack()
		if strings.Contains(out.String(), secret) {
			t.Fatalf("%s: the prompt was logged:\n%s", name, out.String())
		}
	}
	// Messages to actors that are gone.
	pid := rg.pools.all["a"].idle[0].pid
	rg.Close(t.Context())
	for _, m := range []any{&job{request: secret}, &home{result: secret}, &granted{}, &refused{}, &canceled{}, &grow{}} {
		rg.root.Send(pid, m)
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("the prompt was logged:\n%s", out.String())
	}
	if !strings.Contains(out.String(), "a task panicked") {
		t.Error("nothing was logged at all")
	}
}
