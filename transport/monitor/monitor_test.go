package monitor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request has an encode of two legs that took a second each, beside each other,
// after half a second in the queue; then prefill, and a stream.
func request(serial string, at time.Time) (server.Running, server.Record) {
	j := &journal.Journal{}
	after := func(ms int) time.Time { return at.Add(time.Duration(ms) * time.Millisecond) }
	call := func(upstream string, from, answered, until int) {
		c := j.Begin(upstream, serial, after(from))
		c.Answered(200, after(answered))
		c.End(after(until))
	}
	j.BeginStep("encode", at)
	j.Waited("encode", at, after(500))
	call("encode", 500, 1400, 1500)
	call("encode", 500, 1400, 1490)
	j.EndStep(2, "", after(1500))
	j.BeginStep("prefill", after(1500))
	call("prefill", 1500, 1600, 1600)
	j.EndStep(1, "", after(1600))
	j.BeginStep("decode", after(1610))
	call("decode", 1610, 1650, 3000)
	j.EndStep(1, "", after(3000))
	r := server.Running{Serial: serial, ID: "id-" + serial, Model: "m", Protocol: "chat", Stream: true, Received: at, Read: at, Journal: j}
	return r, server.Record{Running: r, Status: 200, Total: 3 * time.Second, FirstByte: 1700 * time.Millisecond,
		Path: journal.EncodePrefillDecode, Entry: j.Entry()}
}

func TestTimeline(t *testing.T) {
	m := New()
	running, rec := request("one", time.Now())
	finished := m.Began(&running)
	if v, ok := m.Request("one"); !ok || v.Outcome != Running || v.Phase != "decode" || v.Status != 0 {
		t.Errorf("%+v", v)
	}
	finished(rec)
	v, ok := m.Request("one")
	var bars []string
	for _, b := range v.Bars {
		bars = append(bars, fmt.Sprintf("%s %g-%g", b.Kind, b.From, b.Until))
	}
	want := "queue 0-500, encode 500-1500, prefill 1500-1600, handoff 1600-1610, decode 1610-1700, stream 1700-3000"
	if got := strings.Join(bars, ", "); !ok || got != want || v.Total != 3000 || v.Outcome != OK {
		t.Errorf("%s\nwant %s\n%+v", got, want, v)
	}
	if len(v.Steps) != 3 || v.Steps[0].Queued != 500 || v.Steps[0].Ran != 1000 || v.Steps[0].Attempts != 2 || len(v.Calls) != 4 || len(v.Waits) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestWhatIsKept(t *testing.T) {
	m := New()
	_, mark := m.Updates(0)
	for i := range 3 * kept {
		running, rec := request(fmt.Sprint(i), time.Now().Add(-10*time.Second))
		if i%2 == 1 {
			rec.Status, rec.Code, rec.Calls = 503, "upstream_unavailable", nil // before any worker had it
		}
		m.Began(&running)(rec)
	}
	all := m.Requests(Filter{}, 1000)
	if len(all) != kept || all[0].Serial != fmt.Sprint(3*kept-1) || len(m.running) != 0 {
		t.Errorf("%d kept, the first is %s; %d running", len(all), all[0].Serial, len(m.running))
	}
	if n := len(m.Requests(Filter{Outcome: Refused}, 1000)); n != kept/2 {
		t.Errorf("%d refused", n)
	}
	if found := m.Requests(Filter{ID: "ID-599", Model: "M", Path: journal.EncodePrefillDecode}, 10); len(found) != 1 {
		t.Errorf("%d found", len(found))
	}
	if found := m.Requests(Filter{Path: "none"}, 10); len(found) != 0 {
		t.Errorf("%d found", len(found))
	}
	if u, next := m.Updates(mark); len(u.Finished) != kept || next != 3*kept {
		t.Errorf("%d since the start, mark %d", len(u.Finished), next)
	}
	if u, _ := m.Updates(3*kept - 2); len(u.Finished) != 2 || u.Finished[0].Serial != fmt.Sprint(3*kept-1) {
		t.Errorf("%d of the last two", len(u.Finished))
	}
	if _, ok := m.Request("0"); ok {
		t.Error("the first is still there")
	}
	s := Status{Pipeline: []Phase{{Name: "encode"}, {Name: "render"}}}
	m.Fill(&s)
	if p := s.Pipeline[0]; p.P50 != 1500 || p.P99 != 1500 || p.Errors != 0 || s.Pipeline[1].P50 != 0 {
		t.Errorf("%+v", s.Pipeline)
	}
	requests, shed := 0.0, 0.0
	for _, p := range s.Chart {
		requests, shed = requests+p.Requests, shed+p.Shed
	}
	if requests == 0 || shed == 0 || len(s.Chart) != 90 {
		t.Errorf("%v requests, %v shed, %d points", requests, shed, len(s.Chart))
	}
	if want := (Totals{Finished: 3 * kept, OK: 3 * kept / 2, Refused: 3 * kept / 2}); s.Totals != want || s.Running != 0 {
		t.Errorf("%+v, %d running", s.Totals, s.Running)
	}
}

// TestRunningAreBounded: those that are too many are counted, and end as others do.
func TestRunningAreBounded(t *testing.T) {
	m, ends := New(), []func(){}
	const extra = 3
	for i := range mostKnown + extra {
		running := server.Running{Serial: fmt.Sprint(i), Received: time.Now(), Journal: &journal.Journal{}}
		finished := m.Began(&running)
		ends = append(ends, func() { finished(server.Record{Running: running, Status: 200}) })
	}
	var s Status
	m.Fill(&s)
	if len(m.running) != mostKnown || s.Running != mostKnown+extra || s.NotShown != mostKnown+extra-mostRunning {
		t.Errorf("%d remembered, %d running, %d not shown", len(m.running), s.Running, s.NotShown)
	}
	if n := len(m.Requests(Filter{}, 2*mostKnown)); n != mostRunning {
		t.Errorf("%d shown", n)
	}
	for _, end := range ends {
		end()
	}
	if m.Fill(&s); len(m.running) != 0 || s.Running != 0 || s.Totals.OK != mostKnown+extra {
		t.Errorf("%d remembered, %d running, %+v", len(m.running), s.Running, s.Totals)
	}
}

// TestShed are those that no worker has done anything for.
func TestShed(t *testing.T) {
	rendered, refused, worked := journal.Call{Upstream: "render", Status: 200}, journal.Call{Upstream: "prefill", Status: 429}, journal.Call{Upstream: "prefill", Status: 200}
	for _, tt := range []struct {
		status int
		calls  []journal.Call
		want   bool
	}{
		{429, nil, true},
		{503, []journal.Call{rendered}, true},
		{429, []journal.Call{rendered, refused}, true},
		{503, []journal.Call{rendered, worked}, false},
		{502, nil, false},
		{400, nil, false},
		{200, []journal.Call{worked}, false},
	} {
		if got := shed(&server.Record{Status: tt.status, Entry: journal.Entry{Calls: tt.calls}}); got != tt.want {
			t.Errorf("%d %v: %t", tt.status, tt.calls, got)
		}
	}
}

// TestWhoLeavesIsNoError of the phase that they left in.
func TestWhoLeavesIsNoError(t *testing.T) {
	m := New()
	for _, gone := range []bool{true, false} {
		running, rec := request("one", time.Now())
		rec.Gone, rec.Steps[2].Code = gone, "code"
		m.Began(&running)(rec)
	}
	s := Status{Pipeline: []Phase{{Name: "decode"}}}
	if m.Fill(&s); s.Pipeline[0].Errors != 1.0/60 {
		t.Errorf("%+v", s.Pipeline)
	}
}

// BenchmarkRequest is what a request costs: a few microseconds at most.
func BenchmarkRequest(b *testing.B) {
	m := New()
	running, rec := request("one", time.Now())
	b.ReportAllocs()
	for b.Loop() {
		m.Began(&running)(rec)
	}
}
