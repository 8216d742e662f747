package wire

import (
	"slices"
	"strings"
	"testing"
)

// streams hold what servers send, in all line ends.
var streams = []string{
	"data: a\n\ndata: b\n\n",
	"data: a\r\n\r\ndata: b\r\n\r\n",
	"data: a\r\rdata: b\r\r",
	"data: a\r\n\ndata: b\n\r\n",
	"data: a\n\r\ndata: b\r\n\r",
	"data: a\r\r\n\n\n\r\rdata: b\n\n\n",
	": ping\n\n: ping\n\n",
	": ping\ndata: a\n: ping\n\n",
	": ping\r\n\r\n",
	"event: x\nid: 1\ndata: {\"a\":\ndata: 1}\nretry: 5\n\n",
	"\n\n\ndata: a\n\n",
	"\r\n\r\ndata: long enough to be more than one look\r\n\r\n",
	"data: [DONE]\n\n",
	"data: a\n\nx",
	"data\n\n",
	"",
}

// events is a parser of server-sent events that goes line by line (the HTML
// standard, 9.2.6). It returns the data of the events that the text completes.
func events(text string) (done []string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	lines := strings.Split(text, "\n")
	var data []string
	for _, line := range lines[:len(lines)-1] { // the last has no end
		field, value, _ := strings.Cut(line, ":")
		switch {
		case line == "":
			if data != nil {
				done = append(done, strings.Join(data, "\n"))
			}
			data = nil
		case field == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return done
}

// between reports whether a stream that has come so far stands between two
// events: at its start, or behind an empty line.
func between(text string) bool {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	return strings.Trim(text, "\n") == "" || strings.HasSuffix(text, "\n\n")
}

// checkBoundary follows a stream in these chunks and holds that what is
// written behind the gap is an event of its own.
func checkBoundary(t *testing.T, chunks ...string) {
	t.Helper()
	var b Boundary
	text := ""
	for _, chunk := range chunks {
		b.Write([]byte(chunk))
		text += chunk
	}
	gap := b.Gap()
	if (gap == "") != between(text) {
		t.Fatalf("after %q the gap is %q", chunks, gap)
	}
	before := events(text + "\n\n") // all that has come, as it would be dispatched
	if strings.HasSuffix(text, "\r") {
		before = events(text + "\r\r")
	}
	got := events(text + gap + "data: {\"error\":1}\n\n")
	if want := append(before, `{"error":1}`); !slices.Equal(got, want) {
		t.Fatalf("after %q and the gap %q the events are %q, want %q", chunks, gap, got, want)
	}
	if strings.Trim(gap, "\n") != "" || len(gap) > 2 {
		t.Fatalf("after %q the gap is %q", chunks, gap)
	}
}

func TestBoundaryInAllSplits(t *testing.T) {
	for _, s := range streams {
		for end := range len(s) + 1 {
			for i := range end + 1 {
				checkBoundary(t, s[:i], s[i:end])
				for j := i; j <= end; j++ {
					checkBoundary(t, s[:i], s[i:j], s[j:end])
				}
			}
			checkBoundary(t, strings.Split(s[:end], "")...)
		}
	}
}

// All short streams of line ends and one letter, in one chunk and byte by
// byte, before and behind a longer piece.
func TestBoundaryOfEveryShortStream(t *testing.T) {
	alphabet := []byte("\n\ra")
	for n := range 9 {
		total := 1
		for range n {
			total *= len(alphabet)
		}
		for k := range total {
			s := make([]byte, n)
			for i := range s {
				s[i] = alphabet[k%len(alphabet)]
				k /= len(alphabet)
			}
			checkBoundary(t, string(s))
			checkBoundary(t, strings.Split(string(s), "")...)
			checkBoundary(t, "data: abc", string(s))
			checkBoundary(t, "data: abc\r", string(s))
		}
	}
}

func TestGapIsWhatIsMissing(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "data: a\n\n": "", "data: a\n": "\n", "data: a": "\n\n", "data: a\r\n": "\n", "data: a\r\n\r\n": "", "data: a\r\n\r": "",
		": ping": "\n\n", ": ping\n\n": "",
		// The \n alone would be the second half of one line end.
		"data: a\r": "\n\n",
	} {
		var b Boundary
		b.Write([]byte(text))
		if got := b.Gap(); got != want {
			t.Errorf("after %q the gap is %q, want %q", text, got, want)
		}
	}
}

func TestIsEventStream(t *testing.T) {
	for _, tt := range []struct {
		lines string
		want  bool
	}{
		{"Content-Type: text/event-stream", true},
		{"Content-Type: text/event-stream; charset=utf-8", true},
		{"Content-Type: Text/Event-Stream ;charset=utf-8", true},
		{"Content-Type: text/event-stream\nContent-Encoding: identity", true},
		{"Content-Type: text/event-stream\nContent-Encoding: Identity", true},
		{"Content-Type: text/event-stream\nContent-Encoding: gzip", false},
		{"Content-Type: text/event-stream\nContent-Encoding: identity\nContent-Encoding: gzip", false},
		{"Content-Type: text/event-stream-2", false},
		{"Content-Type: application/json", false},
		{"X-A: text/event-stream", false},
	} {
		if got := IsEventStream(received(strings.Split(tt.lines, "\n")...)); got != tt.want {
			t.Errorf("IsEventStream(%q) = %v", tt.lines, got)
		}
	}
}

// TestBoundaryKnowsTheEnd however the stream is cut into pieces.
func TestBoundaryKnowsTheEnd(t *testing.T) {
	for stream, want := range map[string]bool{
		"":                                     false,
		"data: [DONE]":                         false,
		"data: [DONE]\n":                       false,
		"data: [DONE]\n\n":                     true,
		"data: {}\n\ndata: [DONE]\n\n":         true,
		"data: {}\r\n\r\ndata: [DONE]\r\n\r\n": true,
		"data: [DONE]\n\n\n":                   true,
		"data: [DONE]\n\ndata: {}\n\n":         false,
		"data: {\"x\":\"data: [DONE]\"}\n\n":   false,
	} {
		for i := range len(stream) + 1 {
			for j := i; j <= len(stream); j++ {
				var b Boundary
				for _, piece := range []string{stream[:i], stream[i:j], stream[j:]} {
					b.Write([]byte(piece))
				}
				if b.Done() != want {
					t.Fatalf("%q in pieces of %d, %d, %d: %v", stream, i, j-i, len(stream)-j, !want)
				}
			}
		}
	}
}
