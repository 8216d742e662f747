package assembly_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// TestPage looks at the operators' page with a real browser: one for all, a tab
// for each.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("!!! LEFT OUT: the operators' page in a browser, which takes half a minute (not with -short)")
	}
	browser := startBrowser(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"pipeline":   pageShowsPipeline,
		"request":    pageShowsRequest,
		"filter":     pageFilters,
		"breaker":    pageShowsBreaker,
		"hostile":    pageShowsHostileNamesAsText,
		"no scripts": pageWithoutScripts,
		"lost":       pageSaysThatConnectionIsLost,
		"phone":      pageFitsPhone,
		"bounded":    pageIsBounded,
		"focus":      pageKeepsFocus,
	} {
		t.Run(name, func(t *testing.T) { test(t, browser) })
	}
}

// startBrowser starts Chromium, and ends it with the test.
func startBrowser(t *testing.T) context.Context {
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("chromium is not there; make needs installs it in CI")
		}
		t.Skip("!!! LEFT OUT: the operators' page in a browser. It needs chromium (Debian: apt-get install chromium).")
	}
	ctx, cancel := chromedp.NewExecAllocator(within(t), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("the browser does not end: %v", err)
		}
	})
	return ctx
}

// tab is a page in the browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	ops *httptest.Server

	mu     sync.Mutex
	asked  []string // addresses
	faults []string // errors of scripts, and what the policy forbade
}

// openTab opens a tab and serves the operators' listener of a rig to it. When the
// test ends, it checks that nothing else was asked for anything.
func openTab(t *testing.T, browser context.Context, r *rig, scripts bool) *tab {
	t.Helper()
	p := &tab{t: t, ops: httptest.NewServer(r.Admin.Handler())}
	t.Cleanup(func() { p.stopServing() })
	// A tab keeps its contexts when the test is over, so that it can be closed.
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p.ctx = ctx
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
		if err == nil {
			_, err = chromedp.Call(ctx, browserlog.Enable, struct{}{})
		}
		if err == nil {
			_, err = chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !scripts})
		}
		return err
	}))
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("the tab does not close: %v", err)
		}
		p.check(scripts)
	})
	return p
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.asked = append(p.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *browserlog.EventEntryAdded:
		if e.Entry.Source == browserlog.EntrySourceSecurity || e.Entry.Source == browserlog.EntrySourceJavascript {
			p.faults = append(p.faults, e.Entry.Text)
		}
	}
}

func (p *tab) check(scripts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) > 0 {
		p.t.Errorf("errors in the page: %q", p.faults)
	}
	own := p.ops.Listener.Addr().String()
	for _, address := range p.asked {
		if u, err := url.Parse(address); err != nil || u.Host != own {
			p.t.Errorf("the page asked %s", address)
		}
	}
	if fed := slices.Contains(p.asked, p.ops.URL+"/events"); fed != scripts {
		p.t.Errorf("fed by events: %t, asked for %q", fed, p.asked)
	}
}

func (p *tab) stopServing() {
	p.ops.Listener.Close()
	p.ops.CloseClientConnections()
	p.ops.Close()
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) visit(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.ops.URL+path), chromedp.WaitVisible("main"))
}

// await waits until an expression is true in the page.
func (p *tab) await(expression string) {
	p.t.Helper()
	_, err := chromedp.Run(p.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(time.Minute)))
	if err != nil {
		text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		p.t.Fatalf("never %s: %v\n%s", expression, err, text)
	}
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.TextContent(selector))
	if err != nil {
		p.t.Fatalf("%s: %v", selector, err)
	}
	return text
}

// textIs is an expression: an element has that text.
func textIs(selector, want string) string {
	return fmt.Sprintf("document.querySelector(%q)?.textContent === %q", selector, want)
}

// rowIs is an expression: the table has a request in that state.
func rowIs(id, outcome string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#requests tbody tr')].some((row) =>
		row.querySelector('.id a').textContent === %q && row.querySelector('.badge').textContent === %q)`, id, outcome)
}

func rowsAre(ids ...string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#requests tbody .id a')].map((a) => a.textContent).join() === %q`, strings.Join(ids, ","))
}

const phaseOfDecode = "#pipeline [data-phase=decode] "

func pageShowsPipeline(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	p := openTab(t, browser, r, true)
	p.visit("/")
	p.await(`[...document.querySelectorAll('#pipeline .name')].map((name) => name.textContent).join() === "render,prefill,decode"`)
	p.await(textIs("#version", "test"))
	p.await(textIs("#connection", "live"))
	p.await(textIs(phaseOfDecode+".running b", "0"))
	p.await(textIs(phaseOfDecode+".p50", "0.0 ms"))

	const crowd = 3
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtHeaders})
	var wg sync.WaitGroup
	for range crowd {
		wg.Go(func() { r.post(chatPath, chatBody("hi", true)) })
	}
	p.await(textIs("#inflight", "3"))
	p.await(textIs(phaseOfDecode+".running b", "3"))
	p.await(fmt.Sprintf("document.querySelector(%q).textContent.startsWith('3 of ')", phaseOfDecode+".busy"))
	p.await(fmt.Sprintf("document.querySelector(%q).value === 3", phaseOfDecode+"meter"))
	gate.Release()
	wg.Wait()
	p.await(textIs("#inflight", "0"))
	p.await(textIs(phaseOfDecode+".running b", "0"))
	p.await("!(" + textIs(phaseOfDecode+".p50", "0.0 ms") + ")")
	// The charts have lines, and say what they show.
	p.await("document.querySelectorAll('.chart .curve').length === 4")
	p.await("document.querySelector('.chart').getAttribute('aria-label').startsWith('Requests per second, last 15 minutes: now ')")
	r.settled()
}

func pageShowsRequest(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	p := openTab(t, browser, r, true)
	p.visit("/")
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
	ended := make(chan response)
	go func() { ended <- r.post(chatPath, chatBody("hi", true), "X-Request-Id", "held") }()
	p.await(rowIs("held", "running"))
	p.await(textIs("#requests .detail", "decode"))
	gate.Release()
	<-ended
	p.await(rowIs("held", "ok"))
	p.await(textIs("#requests .detail", "200"))
	p.await("document.querySelectorAll('#requests .timeline .k-prefill').length === 1")
	p.await("document.querySelectorAll('#requests .timeline .k-stream').length === 1")

	p.do(chromedp.Click("#requests .id a"), chromedp.WaitVisible(".lanes"))
	if got := p.text("h1"); got != "held" {
		t.Errorf("the page of the request is about %q", got)
	}
	for _, phase := range []string{"render", "prefill", "decode"} {
		p.await(fmt.Sprintf("[...document.querySelectorAll('.wide th')].filter((head) => head.textContent === %q).length >= 2", phase))
	}
	p.do(chromedp.Click(".back a"), chromedp.WaitVisible("#requests"))
	p.await(rowIs("held", "ok"))
	r.settled()
}

func pageFilters(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	p := openTab(t, browser, r, true)
	p.visit("/")
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", "the-first")
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", "the-second")
	p.await(rowsAre("the-second", "the-first"))
	// A slash goes to the filter. It is sent as a key only: chromedp.KeyEvent sends its
	// character too, though the page has prevented that.
	p.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "rawKeyDown", Key: "/"})
		return err
	}))
	p.await("document.activeElement.name === 'id'")
	p.do(chromedp.KeyEvent("FIRST"))
	p.await(rowsAre("the-first"))
	p.await(textIs("#shown", "1 of 2 shown"))
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", "the-third")
	p.await(textIs("#shown", "1 of 3 shown"))
	p.await(rowsAre("the-first"))
	p.await("location.search === '?id=FIRST'")
	p.do(chromedp.Reload())
	p.await(textIs("#shown", "1 of 3 shown"))
	p.await(rowsAre("the-first"))
	p.do(chromedp.Click("#clear"))
	p.await(rowsAre("the-third", "the-second", "the-first"))
	p.do(chromedp.SetValue("#filter [name=outcome]", "failed"), chromedp.Click("#filter button"))
	p.await(rowsAre())
	p.do(chromedp.WaitVisible("#nothing"))
	p.await("location.search === '?outcome=failed'")
	r.settled()
}

func pageShowsBreaker(t *testing.T, browser context.Context) {
	// It stays open for as long as the page takes to be told more than once.
	r := newRig(t, setup{toml: "[gateway.breaker]\nconsecutive_failures = 2\nhalf_open_requests = 1\nopen_timeout = \"20s\"\n",
		cluster: cluster.Options{Lease: byHand}})
	p := openTab(t, browser, r, true)
	state := func(want string) string {
		return fmt.Sprintf("document.querySelector('#breakers [data-profile=decode]')?.dataset.state === %q", want)
	}
	p.visit("/")
	p.await(state("closed"))
	fault := r.cluster.AddFault(cluster.Fault{Leg: cluster.Decode, Drop: true})
	for r.breaker("decode") != "open" {
		r.post(chatPath, chatBody("hi", true))
	}
	p.await(state("open"))
	p.await("document.querySelector('#breakers [data-profile=decode]').textContent.includes('open, half-open in ')")
	p.await("document.querySelector('#requests [data-outcome=failed]') !== null")
	r.cluster.RemoveFault(fault)
	p.await(state("half-open"))
	r.eventually("closed", func() bool {
		r.post(chatPath, chatBody("hi", true))
		return r.breaker("decode") == "closed"
	})
	p.await(state("closed"))
	r.settled()
}

func pageShowsHostileNamesAsText(t *testing.T, browser context.Context) {
	const model = `<img src=x onerror="document.title='owned'"></td><script>document.title='owned'</script>{{.}}`
	r := newRig(t, setup{})
	id := r.cluster.AddFault(cluster.Fault{Leg: cluster.Render, Status: http.StatusNotFound, Body: `{"error":{"message":"<script>document.title='owned'</script>"}}`})
	body := func(id string) {
		r.post(chatPath, fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model), "X-Request-Id", id)
	}
	body(model)
	p := openTab(t, browser, r, true)
	isText := func() {
		t.Helper()
		p.await(`document.images.length === 0 && document.querySelectorAll('main script').length === 0`)
		p.await(`document.title.includes('oordinator')`)
	}
	p.visit("/") // what the server renders
	p.await(textIs("#requests .model", model))
	body("another") // what the script makes
	p.await("document.querySelectorAll('#requests tbody tr').length === 2")
	p.await(fmt.Sprintf("[...document.querySelectorAll('#requests .model')].every((cell) => cell.textContent === %q)", model))
	isText()
	p.visit("/?id=" + url.QueryEscape(model) + "&model=" + url.QueryEscape(model))
	p.await(fmt.Sprintf("document.querySelector('[name=id]').value === %q", model))
	isText()
	p.visit("/")
	p.do(chromedp.Click("#requests .id a"), chromedp.WaitVisible(".about"))
	p.await(textIs(".about .model", model))
	isText()
	r.cluster.RemoveFault(id)
	r.settled()
}

func pageWithoutScripts(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", "the-first")
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", "the-second")
	p := openTab(t, browser, r, false)
	p.visit("/")
	p.do(chromedp.WaitVisible("#requests tbody tr"), chromedp.WaitVisible("#latest"), chromedp.WaitVisible("#pipeline [data-phase=prefill]"))
	if got := p.text("#requests"); !strings.Contains(got, "the-first") || !strings.Contains(got, "the-second") {
		t.Errorf("the table says %q", got)
	}
	if got := p.text("noscript"); !strings.Contains(got, "Scripts are off") {
		t.Errorf("the page says %q", got)
	}
	p.do(chromedp.SendKeys("#filter [name=id]", "first"), chromedp.Click("#filter button[type=submit]"), chromedp.WaitVisible("[name=id][value=first]"))
	if got := p.text("#requests"); !strings.Contains(got, "the-first") || strings.Contains(got, "the-second") {
		t.Errorf("filtered, the table says %q", got)
	}
	p.do(chromedp.Click("#requests .id a"), chromedp.WaitVisible(".lanes"))
	if got := p.text("h1"); got != "the-first" {
		t.Errorf("the page of the request is about %q", got)
	}
	r.settled()
}

func pageSaysThatConnectionIsLost(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	p := openTab(t, browser, r, true)
	p.visit("/")
	p.await(textIs("#connection", "live"))
	p.stopServing()
	p.await(`/^connection lost, showing data as of \d\d:\d\d:\d\d$/.test(document.querySelector('#connection').textContent)`)
	// What has ended meanwhile is there when the page is fed again.
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", "meanwhile")
	l, err := net.Listen("tcp", p.ops.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	address := p.ops.URL
	p.ops = httptest.NewUnstartedServer(r.Admin.Handler())
	p.ops.Listener.Close()
	p.ops.Listener = l
	p.ops.Start()
	if p.ops.URL != address {
		t.Fatalf("serving on %s, not %s", p.ops.URL, address)
	}
	p.await(textIs("#connection", "live"))
	p.await(rowIs("meanwhile", "ok"))
	r.settled()
}

// pageFitsPhone: nothing is wider than the screen of a phone, whatever names say.
func pageFitsPhone(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", strings.Repeat("long", 30))
	r.post(chatPath, fmt.Sprintf(`{"model":%q,"messages":[]}`, strings.Repeat("long", 50)))
	p := openTab(t, browser, r, true)
	p.do(chromedp.EmulateViewport(360, 740))
	fits := "document.documentElement.scrollWidth <= 360 && [...document.querySelectorAll('main > *, td')].every((part) => part.closest('.wide') || part.getBoundingClientRect().right <= 360)"
	p.visit("/")
	p.await(textIs("#connection", "live"))
	p.await(fits)
	p.do(chromedp.Click("#requests tr:last-child .id a"), chromedp.WaitVisible(".lanes"))
	p.await(fits)
	r.settled()
}

// pageIsBounded: of those that have ended, no more than 200 are there.
func pageIsBounded(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	p := openTab(t, browser, r, true)
	p.visit("/")
	p.await(textIs("#connection", "live"))
	for i := range 250 {
		r.post(chatPath, `{"model":"","messages":[]}`, "X-Request-Id", fmt.Sprintf("n-%d", i))
	}
	p.await("document.querySelectorAll('#requests tbody tr').length === 200 && document.querySelector('#requests .id a').textContent === 'n-249'")
	r.settled()
}

// pageKeepsFocus: who has chosen a link by keyboard keeps it while rows come and go.
func pageKeepsFocus(t *testing.T, browser context.Context) {
	r := newRig(t, setup{})
	gate := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2, RequestID: "held"})
	p := openTab(t, browser, r, true)
	p.visit("/")
	ended := make(chan response)
	go func() { ended <- r.post(chatPath, chatBody("hi", true), "X-Request-Id", "held") }()
	p.await(rowIs("held", "running"))
	p.do(chromedp.Focus("#requests .id a"))
	r.post(chatPath, chatBody("hi", true), "X-Request-Id", "later")
	p.await(rowsAre("held", "later"))
	gate.Release()
	<-ended
	p.await(rowIs("held", "ok"))
	p.await("document.activeElement.textContent === 'held'")
	r.settled()
}
