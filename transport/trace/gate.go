package trace

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// gate is the way of spans to the batch processor, and from there to the
// receiver. It lets in no more than the processor has room for: what that drops
// by itself, it tells nobody of.
type gate struct {
	batches sdk.SpanProcessor
	room    int64
	inside  atomic.Int64
	drops   drops
	ended   chan struct{} // closed when nothing will be sent any more
}

func newGate(to sdk.SpanExporter, room int, log *slog.Logger) *gate {
	g := &gate{room: int64(room), ended: make(chan struct{})}
	g.drops.log = log
	g.batches = sdk.NewBatchSpanProcessor(&outlet{gate: g, to: to}, sdk.WithMaxQueueSize(room))
	return g
}

// OnStart does nothing.
func (g *gate) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd takes in a span, if there is room.
func (g *gate) OnEnd(s sdk.ReadOnlySpan) {
	if g.inside.Add(1) > g.room {
		g.inside.Add(-1)
		g.drops.add(1, "the queue is full: the receiver is too slow, or OTEL_BSP_MAX_QUEUE_SIZE too small")
		return
	}
	g.batches.OnEnd(s)
}

// ForceFlush sends what is inside.
func (g *gate) ForceFlush(ctx context.Context) error { return g.batches.ForceFlush(ctx) }

// Shutdown sends what is inside, and goes on with that if ctx ends before.
func (g *gate) Shutdown(ctx context.Context) error { return g.batches.Shutdown(ctx) }

// leftOver counts what came too late.
func (g *gate) leftOver() {
	if n := g.inside.Swap(0); n > 0 {
		g.drops.add(n, "they came while the exporter was closed")
	}
}

// outlet sends batches and counts those that get lost.
type outlet struct {
	gate *gate
	to   sdk.SpanExporter
	once sync.Once
}

// ExportSpans sends a batch. It returns no error: the processor would hand it to
// the libraries' global handler, which prints it.
func (o *outlet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := o.to.ExportSpans(ctx, spans)
	o.gate.inside.Add(-int64(len(spans)))
	if err != nil {
		o.gate.drops.add(int64(len(spans)), fmt.Sprintf("%.300s", err))
	}
	return nil
}

// Shutdown is called when the last batch was sent.
func (o *outlet) Shutdown(ctx context.Context) error {
	defer o.once.Do(func() { close(o.gate.ended) })
	return o.to.Shutdown(ctx)
}

// warnEvery is how often dropped spans are worth a line.
const warnEvery = time.Minute

// drops counts spans that were dropped, and warns of them now and then.
type drops struct {
	log    *slog.Logger
	count  atomic.Int64
	warned atomic.Int64 // when, in Unix nanoseconds; 0 is never
}

func (d *drops) add(n int64, why string) {
	total := d.count.Add(n)
	last, now := d.warned.Load(), time.Now().UnixNano()
	if last != 0 && now-last < int64(warnEvery) || !d.warned.CompareAndSwap(last, now) {
		return
	}
	d.log.Warn("spans of traces were dropped", "dropped_total", total, "reason", why)
}
