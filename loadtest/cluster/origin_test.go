package cluster

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	stdimage "image"
	"io"
	"net/http"
	"strings"
	"testing"
)

func (r *rig) get(ctx context.Context, url string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

func TestImageBytes(t *testing.T) {
	for _, name := range []string{"a.png", "a.jpg", "a.jpeg", "a.gif", "a.webp"} {
		for _, n := range []int{0, 5000, 5001} {
			data := ImageBytes(name, n)
			if n > 0 && len(data) != n || len(data) < 20 {
				t.Errorf("%s: %d bytes, want %d", name, len(data), n)
			}
			if got := http.DetectContentType(data); got != imageType(name) {
				t.Errorf("%s looks like %s", name, got)
			}
			if bytes.Equal(data, ImageBytes("b"+name, n)) || !bytes.Equal(data, ImageBytes(name, n)) {
				t.Errorf("%s is not its own", name)
			}
			if _, format, err := stdimage.Decode(bytes.NewReader(data)); err != nil && !strings.HasSuffix(name, ".webp") {
				t.Errorf("%s: %s, %v", name, format, err)
			}
		}
	}
	if ImageBytes("a.txt", 9) != nil {
		t.Error("a text is an image")
	}
}

func TestOrigin(t *testing.T) {
	r := start(t, Options{})
	whole := string(ImageBytes("cat.png", 3000))
	for _, test := range []struct {
		name    string
		options ImageOptions
		status  int
		kind    string
		length  string
		body    string
		broken  bool
	}{
		{"plain", ImageOptions{}, 200, "image/png", "", string(ImageBytes("cat.png", 0)), false},
		{"bytes", ImageOptions{Bytes: 3000}, 200, "image/png", "3000", whole, false},
		{"type", ImageOptions{Bytes: 3000, Type: "application/octet-stream; x=y"}, 200, "application/octet-stream; x=y", "3000", whole, false},
		{"no type", ImageOptions{Bytes: 3000, Type: "none"}, 200, "", "3000", whole, false},
		{"no length", ImageOptions{Bytes: 3000, NoLength: true}, 200, "image/png", "", whole, false},
		{"length too large", ImageOptions{Bytes: 3000, Length: 9000}, 200, "image/png", "9000", whole, true},
		{"length too small", ImageOptions{Bytes: 3000, Length: 10}, 200, "image/png", "10", whole[:10], false},
		{"truncated", ImageOptions{Bytes: 3000, Truncated: true}, 200, "image/png", "3000", whole[:1500], true},
		{"truncated without length", ImageOptions{Bytes: 3000, Truncated: true, NoLength: true}, 200, "image/png", "", whole[:1500], true},
		{"html", ImageOptions{HTML: true}, 200, "image/png", "62", "<!DOCTYPE html><html><body>This is not an image.</body></html>", false},
		{"status", ImageOptions{Status: 404}, 404, "application/json", "92", `{"error":{"message":"Not Found","type":"NotFoundError","param":null,"code":404}}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := r.get(t.Context(), r.ImageURL("cat.png", test.options))
			if got.status != test.status || got.body != test.body || (got.err != nil) != test.broken {
				t.Errorf("got %d, %d bytes, %v", got.status, len(got.body), got.err)
			}
			if got.header.Get("Content-Type") != test.kind {
				t.Errorf("type %q", got.header.Get("Content-Type"))
			}
			if n := got.header.Get("Content-Length"); test.name != "plain" && test.name != "status" && n != test.length {
				t.Errorf("length %q, want %q", n, test.length)
			}
		})
	}
	r.noViolations()
}

func TestOriginCompresses(t *testing.T) {
	r := start(t, Options{})
	got := r.get(t.Context(), r.ImageURL("cat.webp", ImageOptions{Gzip: true}))
	unpacked, err := gzip.NewReader(strings.NewReader(got.body))
	if err != nil || got.header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v: %+v", err, got)
	}
	data, err := io.ReadAll(unpacked)
	if err != nil || !bytes.Equal(data, ImageBytes("cat.webp", 0)) {
		t.Errorf("%v: %d bytes", err, len(data))
	}
}

func TestOriginRedirects(t *testing.T) {
	r := start(t, Options{})
	r.client.CheckRedirect = nil
	got := r.get(t.Context(), r.ImageURL("a b.gif", ImageOptions{Redirects: 3, Bytes: 500, NoLength: true}))
	if got.status != 200 || got.body != string(ImageBytes("a b.gif", 500)) || r.Count(Origin) != 4 {
		t.Errorf("got %d after %d", got.status, r.Count(Origin))
	}
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	got = r.get(t.Context(), r.ImageURL("a.gif", ImageOptions{RedirectTo: "http://169.254.169.254/"}))
	if got.status != http.StatusFound || got.header.Get("Location") != "http://169.254.169.254/" {
		t.Errorf("got %+v", got)
	}
}

func TestOriginRefuses(t *testing.T) {
	r := start(t, Options{})
	for path, status := range map[string]int{
		"/_origin/": 404, "/_origin/a.txt": 404, "/_origin/a.png?what=1": 400, "/_origin/a.png?bytes=x": 400,
		"/_origin/a.png?bytes=-1": 400, "/_origin/a.png?status=99": 400, "/_origin/a.png?html=maybe": 400,
	} {
		if got := r.get(t.Context(), r.URL()+path); got.status != status {
			t.Errorf("%s: %+v", path, got)
		}
	}
	resp, err := r.client.Post(r.URL()+"/_origin/a.png", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if readAll(t, resp); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// TestOriginIsALeg: it is recorded with its headers, and faults and gates apply.
func TestOriginIsALeg(t *testing.T) {
	r := start(t, Options{})
	image := r.ImageURL("cat.jpg", ImageOptions{Bytes: 2000})
	r.AddFault(Fault{Leg: Origin, Status: 503, Times: 1})
	if got := r.get(t.Context(), image); got.status != 503 {
		t.Errorf("status: %+v", got)
	}
	r.AddFault(Fault{Leg: Origin, BreakAfter: new(0), Times: 1})
	if got := r.get(t.Context(), image); !errors.Is(got.err, io.ErrUnexpectedEOF) || len(got.body) != 1000 {
		t.Errorf("break: %v, %d bytes", got.err, len(got.body))
	}
	gate := r.Hold(Gate{Leg: Origin, At: AtHeaders})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan answer, 1)
	go func() { left <- r.get(ctx, image) }()
	<-gate.Reached()
	cancel()
	<-left
	r.wait(State.Idle)
	legs := r.Legs("")
	if last := legs[2]; last.Name != Origin || !last.Aborted || last.Path != "/_origin/cat.jpg" || last.Query != "bytes=2000" ||
		last.Header.Get("User-Agent") == "" || last.Header.Get("X-Request-Id") != "" {
		t.Errorf("recorded %+v", last)
	}
	r.noViolations()
}
