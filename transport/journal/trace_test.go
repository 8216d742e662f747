package journal

import (
	"strings"
	"testing"
)

const (
	given  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ids    = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	zeros  = "00000000000000000000000000000000"
	zeros8 = "0000000000000000"
)

func TestParseTraceparent(t *testing.T) {
	for _, tt := range []struct {
		value   string
		ok      bool
		sampled bool
	}{
		{given, true, true},
		{"00-" + ids + "-00", true, false},
		{"00-" + ids + "-02", true, false}, // a flag that we do not know
		{"00-" + ids + "-ff", true, true},
		{"01-" + ids + "-01", true, true}, // a later version
		{"cc-" + ids + "-01-what-ever", true, true},
		{"cc-" + ids + "-01-", true, true},

		{"", false, false},
		{"00", false, false},
		{"00-" + ids, false, false},
		{"00-" + ids + "-01-more", false, false}, // version 00 has no more
		{"00-" + ids + "-01-", false, false},
		{"ff-" + ids + "-01", false, false},
		{"0g-" + ids + "-01", false, false},
		{"0-" + ids + "-01", false, false},
		{"00-" + ids + "-1", false, false},
		{"00-" + ids + "-001", false, false},
		{"00-" + ids + "-0x", false, false},
		{"00-" + ids + "-01 ", false, false},
		{" 00-" + ids + "-01", false, false},
		{strings.ToUpper(given), false, false},
		{"00-" + zeros + "-00f067aa0ba902b7-01", false, false},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-" + zeros8 + "-01", false, false},
		{"00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", false, false},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-01", false, false},
		{"00-4bf92f3577b34da6a3ce929d0e0e473z-00f067aa0ba902b7-01", false, false},
		{"00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01", false, false},
		{"cc-" + ids + "-01more", false, false},
	} {
		got, ok := ParseTraceparent(tt.value)
		if ok != tt.ok || got.Sampled() != tt.sampled || got.Known() != tt.ok || got.Ours || got.Span != (SpanID{}) {
			t.Errorf("%q: %+v, %t", tt.value, got, ok)
		}
		if !ok && got != (Trace{}) {
			t.Errorf("%q: something is left: %+v", tt.value, got)
		}
	}
	got, _ := ParseTraceparent(given)
	if again := got.Traceparent(got.Parent); again != given || got.String() != ids[:32] {
		t.Errorf("%s became %s, of trace %s", given, again, got.String())
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add(given)
	f.Add("cc-" + ids + "-01-what-ever")
	f.Add("00-" + zeros + "-" + zeros8 + "-00")
	f.Fuzz(func(t *testing.T, value string) {
		got, ok := ParseTraceparent(value)
		if !ok {
			if got != (Trace{}) {
				t.Fatalf("%q is none, and left %+v", value, got)
			}
			return
		}
		if !got.Known() || got.Parent == (SpanID{}) || got.Flags > 1 {
			t.Fatalf("%q: %+v", value, got)
		}
		written := got.Traceparent(got.Parent)
		if again, ok := ParseTraceparent(written); !ok || again != got || written[3:52] != value[3:52] {
			t.Fatalf("%q was written as %q", value, written)
		}
	})
}

// TestIDsAreRandomInAllBits: samplers go by the low bytes of a trace's id.
func TestIDsAreRandomInAllBits(t *testing.T) {
	var set, unset [24]byte
	for range 200 {
		trace, span := NewTraceID(), NewSpanID()
		if trace == (TraceID{}) || span == (SpanID{}) {
			t.Fatal("an id of zeros")
		}
		for i, b := range append(trace[:], span[:]...) {
			set[i] |= b
			unset[i] |= ^b
		}
	}
	for i := range set {
		if set[i] != 0xff || unset[i] != 0xff {
			t.Errorf("byte %d: bits %08b are never set, bits %08b always", i, ^set[i], ^unset[i])
		}
	}
}

func TestTraceOfNothing(t *testing.T) {
	var j *Journal
	if j.TraceID() != "" || (&Journal{}).TraceID() != "" {
		t.Error("nothing has a trace")
	}
}
