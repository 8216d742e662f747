package trace

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Attributes of the semantic conventions, and our own.
const (
	keyMethod    = "http.request.method"
	keyStatus    = "http.response.status_code"
	keyResends   = "http.request.resend_count"
	keyURLPath   = "url.path"
	keyRoute     = "http.route"
	keyError     = "error.type"
	keyOperation = "gen_ai.operation.name"
	keyModel     = "gen_ai.request.model"
	keyTokensIn  = "gen_ai.usage.input_tokens"
	keyTokensOut = "gen_ai.usage.output_tokens"

	own = "llm_d.coordinator."
)

// operations are the names of the semantic conventions for what protocols do.
var operations = map[string]string{
	wire.Chat.Name:        "chat",
	wire.Completions.Name: "text_completion",
	wire.Generate.Name:    "text_completion",
	wire.Responses.Name:   "chat",
}

// canceled is the code of what ended because its client left, or because it was
// not needed any more: it is no failure.
var canceled = wire.Faultf(wire.Canceled, "").ErrorCode()

// builder makes the spans of one request.
type builder struct {
	tracer otel.Tracer
	rec    *server.Record
	trace  *journal.Trace
	end    time.Time
	root   context.Context
	phases []context.Context // of steps
}

// span is one of them.
type span struct {
	id           journal.SpanID // zero: a new one
	name         string
	kind         otel.SpanKind
	began, ended time.Time
	attributes   []attribute.KeyValue
	events       []event
	// failed is the code of its failure, or "".
	failed string
}

type event struct {
	name       string
	at         time.Time
	attributes []attribute.KeyValue
}

func (b *builder) build() {
	b.request()
	b.phases = make([]context.Context, len(b.rec.Steps))
	for i := range b.rec.Steps {
		b.phase(i)
	}
	for i := range b.rec.Waits {
		w := &b.rec.Waits[i]
		b.add(b.below(w.Step), span{name: "queue " + w.Pool, began: w.From, ended: w.Until,
			attributes: []attribute.KeyValue{attribute.String(own+"pool", w.Pool)}})
	}
	for i := range b.rec.Calls {
		b.call(i)
	}
}

// add makes a span, and returns what spans below it are made with.
func (b *builder) add(parent context.Context, s span) context.Context {
	if s.id == (journal.SpanID{}) {
		s.id = journal.NewSpanID()
	}
	ctx, made := b.tracer.Start(context.WithValue(parent, idsKey{}, ids{otel.TraceID(b.trace.ID), otel.SpanID(s.id)}), s.name,
		otel.WithTimestamp(b.at(s.began)), otel.WithSpanKind(s.kind), otel.WithAttributes(s.attributes...))
	for _, e := range s.events {
		made.AddEvent(e.name, otel.WithTimestamp(b.at(e.at)), otel.WithAttributes(e.attributes...))
	}
	if s.failed != "" {
		made.SetStatus(codes.Error, s.failed)
	}
	made.End(otel.WithTimestamp(b.at(s.ended)))
	return ctx
}

// at returns a time by the clock as it was when the request came: it may have been
// set since. The zero time stands for what had not ended with the request.
func (b *builder) at(t time.Time) time.Time {
	if t.IsZero() {
		t = b.end
	}
	return b.rec.Received.Add(t.Sub(b.rec.Received))
}

// below returns what spans of a step are made with.
func (b *builder) below(step int) context.Context {
	if step < 0 || step >= len(b.phases) {
		return b.root
	}
	return b.phases[step]
}

// request makes the span of the whole request.
func (b *builder) request() {
	rec, parent := b.rec, context.Background()
	if b.trace.Parent != (journal.SpanID{}) {
		parent = otel.ContextWithRemoteSpanContext(parent, otel.NewSpanContext(otel.SpanContextConfig{TraceID: otel.TraceID(b.trace.ID),
			SpanID: otel.SpanID(b.trace.Parent), TraceFlags: otel.TraceFlags(b.trace.Flags), Remote: true}))
	}
	s := span{id: b.trace.Span, name: rec.Method + " " + rec.URLPath, kind: otel.SpanKindServer, began: rec.Received, ended: b.end, attributes: b.about()}
	if rec.Protocol == wire.Passthrough.Name {
		s.name = rec.Method + " " + rec.Protocol // there may be any number of paths
	}
	code := rec.Code
	if code == "" && rec.Status >= 500 {
		code = strconv.Itoa(rec.Status)
	}
	if code != "" {
		s.attributes = append(s.attributes, attribute.String(keyError, code))
	}
	// What the client did wrong is no failure of a server. A code with a good status
	// is an answer that broke off.
	if !rec.Gone && (rec.Status >= 500 || rec.Status < 400) {
		s.failed = code
	}
	for i, note := range rec.Notes {
		s.events = append(s.events, event{name: note, at: rec.NotedAt[i]})
	}
	if rec.FirstByte > 0 {
		s.events = append(s.events, event{name: "first byte", at: rec.Received.Add(rec.FirstByte)})
	}
	b.root = b.add(parent, s)
}

// about are the attributes of a request.
func (b *builder) about() []attribute.KeyValue {
	rec := b.rec
	all := make([]attribute.KeyValue, 0, 20)
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, value))
		}
	}
	number := func(key string, n int) {
		if n > 0 {
			all = append(all, attribute.Int(key, n))
		}
	}
	text(keyMethod, rec.Method)
	text(keyURLPath, rec.URLPath)
	if rec.Protocol != wire.Passthrough.Name {
		text(keyRoute, rec.URLPath)
	}
	if !rec.Gone || rec.Status < 400 { // else the client saw none
		number(keyStatus, rec.Status)
	}
	text(keyOperation, operations[rec.Protocol])
	text(keyModel, rec.Model)
	number(keyTokensIn, rec.TokensIn)
	number(keyTokensOut, rec.TokensOut)
	text(own+"request_id", rec.ID)
	text(own+"internal_id", rec.Serial)
	text(own+"tenant", rec.Tenant)
	text(own+"path", rec.Path)
	number(own+"images", rec.Images)
	number(own+"audios", rec.Audios)
	number(own+"videos", rec.Videos)
	number(own+"reruns", rec.Reruns)
	return append(all, attribute.Bool(own+"stream", rec.Stream), attribute.Bool(own+"client_gone", rec.Gone))
}

// phase makes the span of a step.
func (b *builder) phase(i int) {
	st := &b.rec.Steps[i]
	s := span{name: st.Phase, began: st.Began, ended: st.Ended, attributes: []attribute.KeyValue{
		attribute.Int(own+"tasks", st.Tasks), attribute.Int(own+"attempts", b.rec.Attempts(i))}}
	s.fail(st.Code)
	b.phases[i] = b.add(b.root, s)
}

// fail says why what the span stands for failed, if it did.
func (s *span) fail(code string) {
	if code == "" {
		return
	}
	s.attributes = append(s.attributes, attribute.String(keyError, code))
	if code != canceled {
		s.failed = code
	}
}

// call makes the span of a leg when it comes to its first attempt: one for all of
// them. A download is a span too, but no call of ours alone: it may be shared.
func (b *builder) call(first int) {
	calls := b.rec.Calls
	c, last := &calls[first], &calls[first]
	for i := range first {
		if calls[i].Span == c.Span {
			return
		}
	}
	s := span{id: c.Span, name: "leg " + c.Upstream, kind: otel.SpanKindClient, began: c.Began,
		attributes: []attribute.KeyValue{attribute.String(own+"upstream", c.Upstream)}}
	resends := 0
	for i := first + 1; i < len(calls); i++ {
		if calls[i].Span == c.Span {
			s.events = append(s.events, again(last, &calls[i]))
			last = &calls[i]
			resends++
		}
	}
	s.ended = last.Ended
	if c.ID == "" {
		s.name, s.kind = "download", otel.SpanKindInternal
	} else {
		s.attributes = append(s.attributes, attribute.String(own+"request_id", last.ID), attribute.String(keyMethod, b.method()))
	}
	if resends > 0 {
		s.attributes = append(s.attributes, attribute.Int(keyResends, resends))
	}
	if last.Status > 0 {
		s.attributes = append(s.attributes, attribute.Int(keyStatus, last.Status))
		s.events = append(s.events, event{name: "answered", at: last.Answered})
	}
	s.fail(reason(last))
	b.add(b.below(c.Step), s)
}

// again is the event of another attempt of a leg.
func again(failed, next *journal.Call) event {
	e := event{name: "retry", at: next.Began, attributes: []attribute.KeyValue{
		attribute.String(own+"request_id", next.ID), attribute.String(keyError, reason(failed))}}
	if failed.Status > 0 {
		e.attributes = append(e.attributes, attribute.Int(keyStatus, failed.Status))
	}
	return e
}

// reason is why a call failed, or "". A conditional decode is told by 412 that the
// prompt is not cached, which is an answer like another.
func reason(c *journal.Call) string {
	if c.Reason == "" && c.Status >= 400 && c.Status != http.StatusPreconditionFailed {
		return strconv.Itoa(c.Status)
	}
	return c.Reason
}

// method is that of the request's legs.
func (b *builder) method() string {
	if b.rec.Protocol == wire.Passthrough.Name {
		return b.rec.Method
	}
	return http.MethodPost
}

// ids are those of the next span.
type ids struct {
	trace otel.TraceID
	span  otel.SpanID
}

type idsKey struct{}

// chosen generates the ids that were chosen before.
type chosen struct{}

// NewIDs returns those of a span without a parent.
func (chosen) NewIDs(ctx context.Context) (otel.TraceID, otel.SpanID) {
	next := ctx.Value(idsKey{}).(ids)
	return next.trace, next.span
}

// NewSpanID returns that of a span with one.
func (chosen) NewSpanID(ctx context.Context, _ otel.TraceID) otel.SpanID {
	return ctx.Value(idsKey{}).(ids).span
}
