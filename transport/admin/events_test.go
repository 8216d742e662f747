package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/monitor"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// page is one that is fed.
type page struct {
	t     *testing.T
	body  *bufio.Reader
	leave func()
}

// openPage opens a page, or returns the status that refuses it.
func openPage(t *testing.T, c *http.Client) (*page, int) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://admin.test/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", resp.Header)
	}
	return &page{t, bufio.NewReader(resp.Body), func() { leave(); resp.Body.Close() }}, resp.StatusCode
}

// event is what a page is told, of either kind.
type event struct {
	Status                      monitor.Status
	Requests, Running, Finished []monitor.View
}

// next reads an event.
func (p *page) next(name string) (e event) {
	p.t.Helper()
	var lines []string
	for len(lines) < 3 {
		line, err := p.body.ReadString('\n')
		if err != nil {
			p.t.Fatal(err)
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	data, ok := strings.CutPrefix(lines[1], "data: ")
	if lines[0] != "event: "+name || !ok || lines[2] != "" {
		p.t.Fatalf("%q", lines)
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		p.t.Fatal(err)
	}
	return e
}

// TestPageIsFed with all there is, then with what has changed, until the server is
// closed.
func TestPageIsFed(t *testing.T) {
	s := newServer()
	m := s.settings.Monitor
	m.Began(&hostile.Running)(hostile)
	p, _ := openPage(t, serve(t, s))
	if e := p.next("snapshot"); e.Status.Inflight != 3 || len(e.Requests) != 1 || e.Requests[0].Outcome != monitor.Failed {
		t.Errorf("%+v", e)
	}
	second := server.Running{Serial: "two-2", Received: hostile.Received, Journal: hostile.Journal}
	finished := m.Began(&second)
	if e := p.next("update"); len(e.Running) != 1 || e.Running[0].Serial != "two-2" || len(e.Finished) != 0 {
		t.Errorf("%+v", e)
	}
	finished(server.Record{Running: second, Status: 200})
	if e := p.next("update"); len(e.Running) != 0 || len(e.Finished) != 1 || e.Finished[0].Outcome != monitor.OK {
		t.Errorf("%+v", e)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.open != 0 {
		t.Errorf("%d pages are fed by a closed server", s.open)
	}
	if s.openPage() {
		t.Error("a closed server feeds another page")
	}
}

// TestPagesAreBounded: who leaves makes room.
func TestPagesAreBounded(t *testing.T) {
	s := newServer()
	c := serve(t, s)
	var first *page
	for i := range mostOpen {
		p, status := openPage(t, c)
		if status != http.StatusOK {
			t.Fatalf("page %d: %d", i, status)
		}
		if i == 0 {
			first = p
		}
	}
	if _, status := openPage(t, c); status != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", status)
	}
	first.leave()
	// Whoever leaves is noticed by a handler of its own: there is nothing to wait for
	// but the room.
	for {
		if p, status := openPage(t, c); status == http.StatusOK {
			p.next("snapshot")
			return
		}
	}
}
