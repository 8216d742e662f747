// Package trace exports what happened in requests as OpenTelemetry traces, over
// OTLP with protobuf and HTTP. The standard variables OTEL_* configure it; without
// them there is none.
//
// Spans are made when a request has ended, of its record: with the times that are
// in it, and the ids that its legs went out with. So nothing on the way of a
// request knows OpenTelemetry, and one that is not sampled costs its ids.
//
// Nothing of the libraries' global state is used.
package trace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/server"
)

const (
	scope          = "github.com/llm-coordinator/coordinator/transport/trace"
	defaultService = "llm-d-coordinator"
)

// flushPatience is how long Close waits for what is left to be sent.
const flushPatience = 3 * time.Second

// Exporter makes spans of requests and sends them. It may be used by many
// goroutines; a nil Exporter does nothing.
type Exporter struct {
	sampler  sampler
	tracer   otel.Tracer
	provider *sdk.TracerProvider
	sender   *otlptrace.Exporter
	gate     *gate
}

// New makes the exporter that the environment asks for; nil if it asks for none.
// An error names the variable that cannot be used, but no value that could be a
// credential. A nil log logs nothing.
//
// Whether there is one, where it sends to and what it samples is what lookup says.
// What else there is (headers, certificates, time-outs, compression, the batch
// processor, the resource) the libraries read from the environment of the process.
func New(lookup func(name string) (value string, ok bool), version string, log *slog.Logger) (*Exporter, error) {
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s, err := environ(lookup).settings()
	if err != nil || s == nil {
		return nil, err
	}
	ctx := context.Background() // nothing below calls anybody
	sender, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.endpoint))
	if err != nil {
		return nil, fmt.Errorf("exporter of traces (OTEL_EXPORTER_OTLP_*): %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", defaultService), attribute.String("service.version", version)),
		resource.WithFromEnv()) // what comes later wins
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	x := &Exporter{sampler: s.sampler, sender: sender, gate: newGate(sender, s.queue, log)}
	x.provider = sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithIDGenerator(chosen{}),
		sdk.WithSampler(sdk.AlwaysSample()), // it was decided when the request came
		sdk.WithSpanProcessor(x.gate))
	x.tracer = x.provider.Tracer(scope, otel.WithInstrumentationVersion(version))
	log.Info("exporting traces", "service", cmp.Or(s.service, defaultService))
	return x, nil
}

// Sampler returns what decides whether a trace is recorded, as server.Settings
// takes it: nil if there is no exporter.
func (x *Exporter) Sampler() func(journal.Trace) bool {
	if x == nil {
		return nil
	}
	return x.sampler.records
}

// Finished makes the spans of a request that has ended. It does not wait for
// anybody: spans for which there is no room are dropped.
func (x *Exporter) Finished(rec server.Record) {
	if x == nil || rec.Journal == nil || !rec.Journal.Trace.Ours || !rec.Journal.Trace.Sampled() {
		return
	}
	kept := rec // only what is kept is on the heap
	b := &builder{tracer: x.tracer, rec: &kept, trace: &rec.Journal.Trace, end: rec.Received.Add(rec.Total)}
	b.build()
}

// Dropped returns how many spans were dropped since the start: those for which the
// queue had no room, and those of each batch that could not be sent, or of which
// the receiver refused a part.
func (x *Exporter) Dropped() int64 {
	if x == nil {
		return 0
	}
	return x.gate.drops.count.Load()
}

// Close sends what is left, for flushPatience at most, and ends the exporter.
// Requests that end later leave no spans.
func (x *Exporter) Close() {
	if x == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	if x.provider.Shutdown(ctx) != nil { // it goes on by itself
		x.sender.Shutdown(ctx) // which makes that fail
	}
	<-x.gate.ended
	x.gate.leftOver()
}
