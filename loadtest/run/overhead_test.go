package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/load"
)

var _ servers = (*local)(nil)

func (l *local) backend(context.Context, time.Duration) (*server, error) { return l.start() }
func (l *local) relay(_ context.Context, _ string, flags ...string) (*server, error) {
	l.relays = append(l.relays, strings.Join(flags, " "))
	return l.start()
}
func (l *local) coordinator(context.Context, string, bool) (*server, error) {
	return l.start()
}

// little ends by its counts.
var little = effort{turns: 2, turn: time.Minute, warm: time.Minute, heldTurns: 1, held: time.Millisecond, streams: 20, growth: []int{10}, count: 2, peak: 1}

// TestAllIsMeasured: every row is there, and no server is left.
func TestAllIsMeasured(t *testing.T) {
	servers := &local{}
	b := &bench{servers: servers, effort: little, log: io.Discard}
	if err := b.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := servers.running.Load(); n != 0 || servers.started.Load() == 0 {
		t.Errorf("%d servers are left", n)
	}
	var bounds []float64
	for _, r := range b.rows {
		bounds = append(bounds, r.Bound)
		if r.Low > r.High {
			t.Errorf("%+v", r)
		}
	}
	if want := []float64{1.30, 1.25, 1.6, 1.6, 2.5, 150, 80, 10, 3}; !slices.Equal(bounds, want) {
		t.Errorf("bounds %v, want %v", bounds, want)
	}
	if len(b.shares) != 2 || b.shares[0].Name != b.rows[0].Name || b.shares[1].Name != b.rows[1].Name {
		t.Errorf("in steps: %+v", b.shares)
	}
	if want := []string{"", "-contract", "-contract -actors"}; len(servers.relays) < 3 || !slices.Equal(servers.relays[:3], want) || strings.Join(servers.relays[3:], "") != "" {
		t.Errorf("relays %q, want %q and plain ones", servers.relays, want)
	}
	if n := len(b.lines); n != 3+3+2 {
		t.Errorf("%d lines of growth", n)
	}
	if charged := b.rows[8].Floor; charged != 2 { // MB, as the metrics say
		t.Errorf("%v MB are charged", charged)
	}
}

// TestServersEndAfterAnError at each start.
func TestServersEndAfterAnError(t *testing.T) {
	for after := range int64(6) {
		servers := &failing{after: after}
		b := &bench{servers: servers, effort: little, log: io.Discard}
		if err := b.all(t.Context()); !errors.Is(err, errStart) {
			t.Errorf("after %d: %v", after, err)
		}
		if n := servers.running.Load(); n != 0 {
			t.Errorf("after %d: %d servers are left", after, n)
		}
	}
}

var errStart = errors.New("cannot start")

// failing are servers of which only so many start.
type failing struct {
	local
	after int64
}

func (f *failing) coordinator(ctx context.Context, up string, openAI bool) (*server, error) {
	if f.started.Load() >= f.after {
		return nil, errStart
	}
	return f.local.coordinator(ctx, up, openAI)
}

// TestFailuresAreNotMeasured: errors are cheap.
func TestFailuresAreNotMeasured(t *testing.T) {
	s := &server{url: "http://127.0.0.1:1"}
	if _, err := measure(t.Context(), s, load.Request{}, 1, 3, time.Minute); err == nil || !strings.Contains(err.Error(), "of 3 requests 0 went well: codes map[], transport map[refused:3]") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measure(ctx, s, load.Request{}, 1, 3, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	rows := []row{
		ratio("met", "µs", []float64{100, 300, 200}, []float64{220, 330, 240}, 1.30), // 2.2, 1.1, 1.2; medians 200 and 240
		ratio("even", "µs", []float64{1, 3}, []float64{4, 4}, 1.5),
		difference("less", "µs", []float64{20.5, 19.5}, []float64{18, 18}, 10),
		amount("more", "KB", []float64{1}, []float64{81.25}, 80),
	}
	rows[1].Beside = "charged"
	var b strings.Builder
	writeRows(&b, rows)
	writeShares(&b, []share{{"text", "µs", 100, 130, 160, 195}})
	writeGrowth(&b, []growth{{"x", "µs", 10, 15}})
	const want = `| what | floor | coordinator | measured (least–most) | bound | met |
|---|--:|--:|--:|--:|---|
| met | 200 µs | 240 µs | 1.20× (1.10–2.20) | 1.30× | yes |
| even | 2 µs charged | 4 µs | 2.00× (1.33–4.00) | 1.50× | **no** |
| less | 20 µs | 18 µs | -2 µs (-2.5–-1.5) | 10 µs | yes |
| more | 1 KB | 81.2 KB | 81.2 KB (81.2–81.2) | 80 KB | **no** |

| in steps | floor | which keeps the contract | and has actors | coordinator |
|---|--:|--:|--:|--:|
| text | 100 µs | 130 µs, 1.30× | 160 µs, 1.60× | 195 µs, 1.95× |

| growth | floor | coordinator | ratio |
|---|--:|--:|--:|
| x | 10 µs | 15 µs | 1.50 |
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	bench := &bench{rows: rows}
	if err := bench.unmet(); err == nil || err.Error() != "not met: even\nnot met: more" {
		t.Error(err)
	}
}

func TestGauge(t *testing.T) {
	text := []byte("# TYPE a gauge\nab 1\na 2.5e+06\n")
	if v, err := gauge(text, "a"); v != 2.5e6 || err != nil {
		t.Error(v, err)
	}
	if _, err := gauge(text, "c"); err == nil {
		t.Error("a metric that is not there")
	}
}
