package journal

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
	"strings"
)

// TraceID and SpanID are those of the W3C Trace Context.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// Trace says which trace a request belongs to (W3C Trace Context, level 1).
type Trace struct {
	ID TraceID
	// Parent is the client's span, Span the request's own if the trace is ours.
	Parent, Span SpanID
	Flags        byte
	// Ours: the request and its calls have spans, and legs carry those of the
	// calls. Else legs carry what the client sent.
	Ours bool
}

// Known reports whether there is a trace.
func (t *Trace) Known() bool { return t.ID != TraceID{} }

// String returns the id in hex, or "" if there is none.
func (t *Trace) String() string {
	if !t.Known() {
		return ""
	}
	return hex.EncodeToString(t.ID[:])
}

// TraceID returns the id of the trace that the request belongs to, in hex, or "".
func (j *Journal) TraceID() string {
	if j == nil {
		return ""
	}
	return j.Trace.String()
}

// Sampled reports whether somebody before us records the trace, or we do.
func (t *Trace) Sampled() bool { return t.Flags&1 != 0 }

// Traceparent returns the value of the header traceparent that names a span of the
// trace.
func (t *Trace) Traceparent(span SpanID) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, t.ID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, span[:])
	return string(append(b, '-', digits[t.Flags>>4], digits[t.Flags&15]))
}

// ParseTraceparent reads the header traceparent of a client. What is not well
// formed is no trace.
func ParseTraceparent(value string) (t Trace, ok bool) {
	parts := strings.SplitN(value, "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 ||
		parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 || value != strings.ToLower(value) {
		return Trace{}, false
	}
	var version, flags [1]byte
	for _, p := range []struct {
		to   []byte
		from string
	}{{version[:], parts[0]}, {t.ID[:], parts[1]}, {t.Parent[:], parts[2]}, {flags[:], parts[3]}} {
		if _, err := hex.Decode(p.to, []byte(p.from)); err != nil {
			return Trace{}, false
		}
	}
	t.Flags = flags[0] & 1 // the others mean nothing to us
	if !t.Known() || t.Parent == (SpanID{}) {
		return Trace{}, false
	}
	return t, true
}

// NewTraceID returns a new id.
func NewTraceID() (id TraceID) {
	fill(id[:8])
	fill(id[8:])
	return id
}

// NewSpanID returns a new id. Ids need not be secret, only different.
func NewSpanID() (id SpanID) {
	fill(id[:])
	return id
}

// fill keeps all bits random, for samplers go by them; but no id is all zeros.
func fill(b []byte) {
	n := cmp.Or(rand.Uint64(), 1)
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
}
