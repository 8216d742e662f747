package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// headerTimeout is how a client says for how many seconds it waits. Legs carry
// it too, for schedulers behind us.
const headerTimeout = "X-Llm-D-Request-Timeout-Seconds"

const (
	// maxClientTimeout is the longest that a client may ask for.
	maxClientTimeout = 24 * time.Hour
	// maxTenant is how much of a tenant's name counts.
	maxTenant = 256
)

// setTerms tells a request on what terms it is served: for whom, and until when.
// Its time began when its headers were there: a body that comes in slowly is the
// client's own time.
func (s *desk) setTerms(req *phases.Request, h http.Header) *wire.Fault {
	req.Tenant = s.tenant(h)
	if s.waits(req.Protocol, req.Header) {
		return nil
	}
	limit := s.RequestTimeout
	if values := h[headerTimeout]; values != nil {
		asked, ok := clientTimeout(values)
		if !ok {
			return wire.Invalid("invalid_timeout", "the header %s must be one positive number of seconds, at most %d",
				strings.ToLower(headerTimeout), maxClientTimeout/time.Second)
		}
		if limit <= 0 || asked < limit {
			limit = asked
		}
	}
	if limit > 0 {
		req.Deadline = req.Received.Add(limit)
	}
	return nil
}

// journal begins the record of a request, in the trace that its client names.
func (s *desk) journal(r *http.Request) *journal.Journal {
	j := &journal.Journal{}
	if given := r.Header["Traceparent"]; len(given) == 1 {
		j.Trace, _ = journal.ParseTraceparent(given[0])
	}
	if s.Tracing == nil {
		return j
	}
	j.Trace.Ours, j.Trace.Span = true, journal.NewSpanID()
	if !j.Trace.Known() {
		j.Trace.ID = journal.NewTraceID()
	}
	record := s.Tracing(j.Trace)
	j.Trace.Flags = 0
	if record {
		j.Trace.Flags = 1
	}
	return j
}

// tenant is whom a request is for: "" if it does not say.
func (s *desk) tenant(h http.Header) string {
	values := h[s.TenantHeader] // none has the name ""
	if len(values) == 0 {
		return ""
	}
	name := values[0]
	if len(name) > maxTenant {
		name = strings.Clone(name[:maxTenant]) // whoever keeps the name need not keep the rest
	}
	return name
}

// clientTimeout reads a client's time-out. Digits and a point are all that every
// reader of the header takes for the same number.
func clientTimeout(values []string) (time.Duration, bool) {
	if len(values) != 1 || strings.Trim(values[0], "0123456789.") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(values[0], 64)
	if err != nil || seconds <= 0 || seconds > maxClientTimeout.Seconds() {
		return 0, false
	}
	return max(time.Duration(seconds*float64(time.Second)), 1), true // 0 would be no limit
}
