package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDemoAsync takes the commands for requests that may wait at their word.
func TestDemoAsync(t *testing.T) {
	p := start(t, binary(t), "demo", "-async", "-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-token-interval", "1ms")
	welcome := strings.Join(p.until(t, "One line for each request"), "\n")
	curls := regexp.MustCompile(`(?m)^curl -s( -X DELETE)? (\S+)(.*)$`).FindAllStringSubmatch(welcome, -1)
	if len(curls) != 4 {
		t.Fatalf("want 4 commands, got %q", curls)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	do := func(curl []string) (int, string) {
		method, body := http.MethodGet, ""
		if curl[1] != "" {
			method = http.MethodDelete
		}
		if data := regexp.MustCompile(` -d '(.*)'`).FindStringSubmatch(curl[3]); data != nil {
			method, body = http.MethodPost, data[1]
		}
		req, err := http.NewRequest(method, curl[2], strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range regexp.MustCompile(` -H '([^:]+): ([^']+)'`).FindAllStringSubmatch(curl[3], -1) {
			req.Header.Set(h[1], h[2])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if status, text := do(curls[0]); status != 202 || text != `{"id":"my-1","status":"pending"}` {
		t.Errorf("%d %s", status, text)
	}
	status, text := do(curls[1])
	for status == 202 { // the test's own time-out ends it
		status, text = do(curls[1])
	}
	if status != 200 || !strings.Contains(text, "You said: Take your time.") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := do(curls[2]); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := do(curls[1]); status != 410 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := do(curls[3]); status != 200 || !strings.Contains(text, "You said: I have time.") {
		t.Errorf("%d %s", status, text)
	}
	p.Process.Signal(os.Interrupt)
	for p.lines.Scan() { // so that it is not held up by a full pipe
	}
	if err := p.Wait(); err != nil {
		t.Errorf("SIGINT: %v", err)
	}
}
