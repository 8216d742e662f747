package server

import (
	"context"
	"log/slog"
	"time"
)

// finish counts and logs a request that has ended.
func (s *Server) finish(a *answering) {
	rec := a.record(time.Now())
	s.metrics.observe(&rec)
	s.logRecord(&rec)
	if a.finished != nil {
		a.finished(rec)
	}
	if s.Finished != nil {
		s.Finished(rec)
	}
}

// logRecord writes the one line of a request: at info, or as a warning if it
// failed on our side.
func (s *Server) logRecord(rec *Record) {
	level := slog.LevelInfo
	if rec.Status >= 500 {
		level = slog.LevelWarn
	}
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 24+len(rec.Steps))
	add := func(a ...slog.Attr) { attrs = append(attrs, a...) }
	add(slog.String("request_id", rec.ID), slog.String("internal_id", rec.Serial))
	if id := rec.Journal.TraceID(); id != "" {
		add(slog.String("trace_id", id))
	}
	if rec.Tenant != "" {
		add(slog.String("tenant", rec.Tenant))
	}
	add(slog.String("protocol", rec.Protocol), slog.String("model", rec.Model), slog.Bool("stream", rec.Stream))
	if rec.Prompts > 1 {
		add(slog.Int("prompts", int(rec.Prompts)))
	}
	if rec.Path != "" {
		add(slog.String("path", rec.Path))
	}
	add(slog.Int("status", rec.Status))
	if rec.Code != "" {
		add(slog.String("code", rec.Code), slog.String("error", rec.Cause.Error()))
	}
	if rec.Phase != "" && rec.Code != "" {
		add(slog.String("phase", rec.Phase))
	}
	add(slog.Bool("client_gone", rec.Gone), slog.Int64("bytes_in", rec.BytesIn), slog.Int64("bytes", rec.Bytes))
	if rec.TokensIn > 0 {
		add(slog.Int("tokens_in", rec.TokensIn))
	}
	if rec.TokensOut > 0 {
		add(slog.Int("tokens_out", rec.TokensOut))
	}
	if len(rec.Notes) > 0 {
		add(slog.Any("notes", rec.Notes))
	}
	if rec.Reruns > 0 {
		add(slog.Int("reruns", rec.Reruns))
	}
	for i := range rec.Steps {
		add(rec.step(i))
	}
	add(slog.Duration("overhead", rec.Overhead), slog.Duration("first_byte", rec.FirstByte), slog.Duration("total", rec.Total))
	s.line(level, attrs)
}

// line logs what slog's own methods would, but does not find out who calls, which
// they do though nobody is shown it.
func (s *Server) line(level slog.Level, attrs []slog.Attr) {
	line := slog.NewRecord(time.Now(), level, "request", 0)
	line.AddAttrs(attrs...)
	_ = s.log.Handler().Handle(context.Background(), line)
}

// step is how long a step took: in queues, and at work.
func (rec *Record) step(i int) slog.Attr {
	st, queued := &rec.Steps[i], rec.Queued(i)
	return slog.Attr{Key: st.Phase, Value: slog.GroupValue(slog.Duration("queued", queued),
		slog.Duration("ran", max(0, st.Ended.Sub(st.Began)-queued)), slog.Int("attempts", rec.Attempts(i)))}
}
