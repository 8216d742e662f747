package journal

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

var start = time.Now()

// at is so many seconds after the start.
func at(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }

func TestStepsCallsAndWaits(t *testing.T) {
	j := &Journal{Trace: Trace{ID: NewTraceID(), Ours: true}}
	j.BeginStep("encode", at(0))
	j.SkipStep()
	j.BeginStep("prefill", at(1))
	j.Waited("prefill", at(1), at(2))
	j.Sent(at(3))
	j.Sent(at(2))
	j.Sent(time.Time{})
	first := j.Begin("prefill", "id", at(2))
	first.Answered(503, at(3))
	first.Failed("503")
	first.End(at(4))
	first.End(at(9)) // the first counts
	second := first.Again("id-r1", at(5))
	other := j.Begin("prefill", "id", at(5))
	second.End(at(6))
	j.EndStep(2, "code", at(7))
	j.Note("a way")
	j.SetTokensIn(3)
	j.SetTokensOut(4)
	seen := j.Entry()
	j.Note("another")
	j.BeginStep("decode", at(8))
	if len(seen.Notes) != 1 || len(seen.NotedAt) != 1 || len(seen.Steps) != 1 {
		t.Errorf("what was seen has changed: %+v", seen)
	}
	e := j.Close()
	if want := (Step{Phase: "prefill", Began: at(1), Sent: at(2), Ended: at(7), Tasks: 2, Code: "code"}); e.Steps[0] != want || e.Phase != "decode" {
		t.Errorf("steps %+v in %s", e.Steps, e.Phase)
	}
	want := []Call{
		{Upstream: "prefill", ID: "id", Began: at(2), Answered: at(3), Ended: at(4), Status: 503, Reason: "503", Span: first.Span},
		{Upstream: "prefill", ID: "id-r1", Began: at(5), Ended: at(6), Span: first.Span},
		{Upstream: "prefill", ID: "id", Began: at(5), Span: other.Span},
	}
	if !slices.Equal(e.Calls, want) || first.Span == other.Span || first.Span == (SpanID{}) {
		t.Errorf("calls %+v", e.Calls)
	}
	if !slices.Equal(e.Waits, []Wait{{"prefill", 0, at(1), at(2)}}) || !slices.Equal(e.Notes, []string{"a way", "another"}) || e.TokensIn != 3 || e.TokensOut != 4 {
		t.Errorf("%+v", e)
	}
	if e.Attempts(0) != 3 || e.Attempts(1) != 0 {
		t.Errorf("%d attempts", e.Attempts(0))
	}
}

func TestNoSpansUnlessTheTraceIsOurs(t *testing.T) {
	j := &Journal{}
	c := j.Begin("decode", "id", at(0))
	if again := c.Again("id-r1", at(1)); c.Span != (SpanID{}) || again.Span != (SpanID{}) || len(j.Close().Calls) != 2 {
		t.Errorf("%+v", c)
	}
}

// TestNilRecordsNothing, and no call of it fails.
func TestNilRecordsNothing(t *testing.T) {
	var j *Journal
	j.BeginStep("x", at(0))
	j.SkipStep()
	j.Sent(at(0))
	j.EndStep(1, "", at(0))
	j.Waited("x", at(0), at(1))
	j.Note("x")
	j.SetTokensIn(1)
	j.SetTokensOut(1)
	c := j.Begin("x", "id", at(0))
	c.Answered(200, at(0))
	c.Failed("x")
	c.End(at(0))
	c = c.Again("id-r1", at(0))
	c.End(at(0))
	if e := j.Close(); len(e.Calls)+len(e.Steps)+len(e.Waits) > 0 || j.Entry().Phase != "" {
		t.Errorf("%+v", e)
	}
}

// TestManyGoroutines: tasks of one request write while operators' pages read.
// TestClosedTakesNothing: who has the entry reads it without a lock.
func TestClosedTakesNothing(t *testing.T) {
	j := &Journal{Trace: Trace{ID: NewTraceID(), Ours: true}}
	j.BeginStep("replace-media-urls", at(0))
	call := j.Begin("media", "", at(0))
	e := j.Close()
	late := make(chan struct{})
	go func() { // of a download that others share
		defer close(late)
		call.Failed("timeout")
		call.End(at(1))
		again := call.Again("id-r1", at(2))
		again.End(at(3))
		other := j.Begin("render", "id", at(2))
		other.End(at(3))
		j.BeginStep("render", at(2))
		j.Waited("render", at(2), at(3))
		j.Note("late")
		j.SetTokensOut(3)
	}()
	if len(e.Calls) != 1 || !e.Calls[0].Ended.IsZero() || e.Calls[0].Reason != "" || len(e.Steps) != 1 || e.Phase != "replace-media-urls" {
		t.Errorf("%+v", e)
	}
	<-late
	if e := j.Entry(); len(e.Calls) != 1 || !e.Calls[0].Ended.IsZero() || len(e.Steps) != 1 || len(e.Waits)+len(e.Notes)+e.TokensOut != 0 {
		t.Errorf("%+v", e)
	}
}

func TestManyGoroutines(t *testing.T) {
	j := &Journal{Trace: Trace{ID: NewTraceID(), Ours: true}}
	j.BeginStep("encode", at(0))
	const tasks = 8
	var all sync.WaitGroup
	for i := range tasks {
		all.Go(func() {
			c := j.Begin("encode", fmt.Sprint(i), at(i))
			c.Answered(503, at(i))
			c.Failed("503")
			c.End(at(i))
			c = c.Again(fmt.Sprint(i, "-r1"), at(i))
			c.Answered(200, at(i))
			c.End(at(i))
			j.Waited("encode", at(i), at(i+1))
			j.Note("n")
		})
		all.Go(func() {
			e := j.Entry()
			e.Waiting(at(0), at(tasks))
			for i := range e.Calls {
				e.Calls[i].Reason = "mine" // a copy is the reader's own
			}
		})
	}
	all.Wait()
	e := j.Close()
	spans := map[SpanID]int{}
	for _, c := range e.Calls {
		if c.Status == 0 || c.Reason == "mine" || c.Ended.IsZero() {
			t.Errorf("%+v", c)
		}
		spans[c.Span]++
	}
	if len(e.Calls) != 2*tasks || len(spans) != tasks || len(e.Waits) != tasks || len(e.Notes) != tasks || len(e.NotedAt) != tasks {
		t.Errorf("%d calls, %d spans, %d waits", len(e.Calls), len(spans), len(e.Waits))
	}
}
