package plan

import (
	"fmt"

	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

func question(rate float64) Question {
	return Question{Rate: rate, Replicas: 1, Sigmas: 3, Margin: 1, Wait: 2 * time.Second}
}

func number(v float64) *float64 { return &v }

func mustMake(t *testing.T, q Question, c *conf.Config, m *Measured) (*Plan, string) {
	t.Helper()
	p, err := Make(q, c, "", m)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return p, b.String()
}

// parsed has the configuration read what was planned.
func parsed(t *testing.T, text string) *conf.Config {
	t.Helper()
	c, err := conf.Parse("plan", []byte(text+"\n[[pipeline.steps]]\ntype = \"decode\"\n"), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// TestSizes of numbers that can be worked out by hand.
func TestSizes(t *testing.T) {
	q := question(200)
	q.Prompt, q.Output, q.Images = number(1000), number(100), number(0.5)
	q.Times = map[string]time.Duration{media: 200 * time.Millisecond, render: 400 * time.Millisecond, encode: time.Second,
		prefill: 2 * time.Second, decode: 6400 * time.Millisecond}
	_, text := mustMake(t, q, DefaultConfig(), nil)
	a := parsed(t, text).Actors
	for name, pair := range map[string][2]conf.Pool{
		"media":   {a.Pools.Media, {Size: 34, Queue: 200}},    // 20 + 3·√20 = 33.4
		"render":  {a.Pools.Render, {Size: 107, Queue: 400}},  // 80 + 26.8
		"encode":  {a.Pools.Encode, {Size: 130, Queue: 200}},  // 200/s × 0.5 × 1 s
		"prefill": {a.Pools.Prefill, {Size: 460, Queue: 400}}, // 400 + 60
		"decode":  {a.Pools.Decode, {Size: 1803, Queue: 400}}, // its place is taken before prefill: 1680 + 123
		"release": {a.Pools.Release, conf.Default().Actors.Pools.Release},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %+v, want %+v", name, pair[0], pair[1])
		}
	}
	// 200/s × (0.5 × 0.2 + 0.4 + 0.5 × 1 + 2 + 6.4) s = 1880; + 3·√1880 = 2010.1; + the queue
	if a.MaxInflightRequests != 2011+400 {
		t.Errorf("%d requests", a.MaxInflightRequests)
	}
	for _, want := range []string{"decode: 200/s × (2 s of prefill + 6.4 s of decode) = 1680 busy on average; + 3·√1680 = 1803; × 1 = 1803\n",
		"#   pool decode            215/s   1803 places / 8.4 s  <- first\n",
		"#   pool decode            122/s   1024 places / 8.4 s  <- first  too little\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "is a guess, of a model") {
		t.Errorf("all times are given\n%s", text)
	}
}

func TestReplicasShareTheRate(t *testing.T) {
	q := question(200)
	one, _ := mustMake(t, q, DefaultConfig(), nil)
	q.Rate, q.Replicas = 800, 4
	four, text := mustMake(t, q, DefaultConfig(), nil)
	if one.inflight.requests != four.inflight.requests || one.bytes.mb != four.bytes.mb {
		t.Errorf("%+v, %+v", one.inflight, four.inflight)
	}
	if a, b := one.limits(one.planned()), four.limits(four.planned()); 4*a[0].at != b[0].at {
		t.Errorf("%v, %v", a[0], b[0])
	}
	if !strings.Contains(text, "4 replicas, 200/s for each") {
		t.Error(text)
	}
}

// TestPoolsOfThePipeline: those that it does not use are left out, in every example.
// TestPairIsPlannedForAsItsTwoLegs.
func TestPairIsPlannedForAsItsTwoLegs(t *testing.T) {
	const step = "[[pipeline.steps]]\ntype = "
	var texts []string
	for _, steps := range []string{step + "\"prefill\"\n" + step + "\"decode\"\n", step + "\"prefill-decode\"\nparams = { bootstrap_from = \"static:h\" }\n"} {
		c, err := conf.Parse("f.toml", []byte(steps), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, text := mustMake(t, question(50), c, nil)
		texts = append(texts, text)
	}
	if texts[0] != texts[1] {
		t.Errorf("%s\nwant\n%s", texts[1], texts[0])
	}
}

func TestPoolsOfThePipeline(t *testing.T) {
	files, _ := filepath.Glob("../../conf/examples/*.toml")
	if len(files) == 0 {
		t.Fatal("no examples")
	}
	for _, file := range append(files, "../../conf/coordinator.toml") {
		c, err := conf.Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		q := question(50)
		q.Images = number(1)
		p, text := mustMake(t, q, c, nil)
		parsed(t, text)
		var names, steps []string
		for _, pl := range p.pools {
			names = append(names, pl.name)
		}
		for _, s := range c.Pipeline.Steps {
			switch work := works[s.Type]; {
			case s.Type == pair:
				steps = append(steps, prefill, decode)
			case work != probe:
				steps = append(steps, work)
			}
		}
		if !slices.Equal(names, steps) {
			t.Errorf("%s: %v, want %v", file, names, steps)
		}
	}
	q := question(50) // no images
	_, text := mustMake(t, q, DefaultConfig(), nil)
	if strings.Contains(text, "\nmedia =") || strings.Contains(text, "\nencode =") || !strings.Contains(flat(text), "media (nothing to do for it)") {
		t.Error(text)
	}
}

// TestConditionalDecode has its place from the probe on, and saves prefills.
func TestConditionalDecode(t *testing.T) {
	c := DefaultConfig()
	c.Pipeline.Steps = nil
	for _, step := range []string{"render", "conditional-decode", "prefill", "decode"} {
		c.Pipeline.Steps = append(c.Pipeline.Steps, conf.Step{Type: step})
	}
	q := question(100)
	q.Cached = number(0.4)
	q.Times = map[string]time.Duration{probe: time.Second, prefill: 2 * time.Second, decode: 5 * time.Second}
	p, text := mustMake(t, q, c, nil)
	d, _ := p.pool(decode)
	f, _ := p.pool(prefill)
	if d.busy != 100*(1+0.6*2+5) || f.busy != 100*0.6*2 {
		t.Errorf("%v, %v\n%s", d.busy, f.busy, text)
	}
}

// TestImagesThatComeTogether need more room for chance than as many that do not.
func TestImagesThatComeTogether(t *testing.T) {
	q := question(10)
	q.Images = number(4)
	q.Times = map[string]time.Duration{encode: time.Second}
	p, _ := mustMake(t, q, DefaultConfig(), nil)
	if e, _ := p.pool(encode); e.size != 78 { // 40 + 3·√(40 × 4) = 77.9
		t.Errorf("%+v", e)
	}
}

// TestBytes: images and tensors are counted, and what is guessed does not make less
// of what there is.
func TestBytes(t *testing.T) {
	q := question(100)
	q.Images, q.ImageBytes, q.Prompt = number(2), number(3e6), number(0)
	q.Times = map[string]time.Duration{media: time.Second, render: time.Second, encode: time.Second, prefill: time.Second, decode: 6 * time.Second}
	p, text := mustMake(t, q, DefaultConfig(), nil)
	if each := 2*4e6 + 512.0; p.bytes.each != each || float64(p.bytes.mb) < each*float64(p.inflight.requests)/(1<<20) || float64(p.bytes.mb) > 1.2*each*float64(p.inflight.requests)/(1<<20) {
		t.Errorf("%+v\n%s", p.bytes, text)
	}
	c := DefaultConfig()
	c.Pipeline.UseOpenAIFormat = false
	q.TensorBytes = number(3e6)
	if tensors, _ := mustMake(t, q, c, nil); tensors.bytes.each != 2*8e6+512 {
		t.Errorf("%+v", tensors.bytes)
	}
	q.ImageBytes, q.Images, q.Rate = nil, number(0.01), 1
	if guess, text := mustMake(t, q, DefaultConfig(), nil); guess.bytes.mb != 2048 || !strings.Contains(text, "(-image-bytes)") {
		t.Errorf("%+v", guess.bytes)
	}
	q.Images = number(0)
	if none, _ := mustMake(t, q, DefaultConfig(), nil); none.bytes.mb != 256 {
		t.Errorf("%+v", none.bytes)
	}
}

// seen are figures of 100 requests, each with two images of which one is downloaded
// and both are encoded.
func seen() *scrape.Figures {
	timing := func(n, mean float64) scrape.Timing {
		return scrape.Timing{Count: n, Sum: n * mean, Mean: mean, P99: 2 * mean}
	}
	return &scrape.Figures{
		Mix:       scrape.Mix{Requests: 120, Prompts: 100, PromptTokens: 50_000, OutputTokens: 10_000, WithImages: 120, Images: 240, Encodes: 200, Bodies: 120, BodyBytes: 120_000},
		Steps:     map[string]scrape.Timing{"replace-media-urls": timing(100, 1), "encode": timing(100, 1), "decode": timing(100, 3)},
		Upstreams: map[string]scrape.Timing{"render": timing(100, 0.01), "encode": timing(200, 0.5), "prefill": timing(100, 1), "decode": timing(100, 0.2)},
		Downloads: map[string]scrape.Timing{"ok": timing(100, 0.3)},
		Shed:      map[string]float64{"queue_full": 20}, Errors: map[string]float64{"queue_full": 20},
	}
}

// TestMeasured: times and requests are those that were measured, scaled to the length
// that is asked for.
func TestMeasured(t *testing.T) {
	m, err := newMeasured("somewhere", seen(), quotient(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	q := question(10)
	p, text := mustMake(t, q, DefaultConfig(), m)
	w := p.load
	if w.prompt != (quantity{500, measured}) || w.output != (quantity{100, measured}) || w.images != (quantity{2, measured}) ||
		w.byURL != (quantity{0.5, measured}) || w.distinct != 1 || w.perRequest != 2 {
		t.Errorf("%+v", w)
	}
	for work, want := range map[string]float64{media: .3, render: .01, encode: .5, prefill: 1, decode: 3} {
		if got := p.seconds(work); got != want {
			t.Errorf("%s: %v s, want %v", work, got, want)
		}
	}
	for _, want := range []string{"Measured: somewhere.", "20 of 120 requests were refused", "mean of 200 legs, p99 1 s"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	q.Prompt, q.Output = number(1000), number(50)
	q.Times = map[string]time.Duration{render: time.Second}
	p, text = mustMake(t, q, DefaultConfig(), m)
	if p.seconds(prefill) != 2 || p.seconds(decode) != 1.5 || p.seconds(render) != 1 || !strings.Contains(text, "of 500 tokens: × 2 for 1000") {
		t.Error(text)
	}
}

// TestAnswersOfUnknownLength are not scaled: streams do not say how long they were,
// but a report has counted their events.
func TestAnswersOfUnknownLength(t *testing.T) {
	f := seen()
	f.FirstByte.Count = 50
	m, err := newMeasured("x", f, quotient(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	q := question(1)
	q.Output = number(1000)
	if p, text := mustMake(t, q, DefaultConfig(), m); p.seconds(decode) != 3 || !strings.Contains(text, "whose length is not known") {
		t.Error(text)
	}
	report := `{"settings":{"request":{"stream":true}},"counts":{"ok":10,"events":210},"coordinator":{"mix":{"requests":10},
		"first_byte":{"count":10},"steps":{"decode":{"count":10,"sum_seconds":20,"mean_seconds":2}}}}`
	if m, err = FromReport("r.json", []byte(report)); err != nil {
		t.Fatal(err)
	}
	if p, _ := mustMake(t, q, DefaultConfig(), m); p.seconds(decode) != 100 { // 20 tokens took 2 s
		t.Errorf("%+v", p.times)
	}
}

// TestMeasuredWithDecodeAlone: there the step of decode waits for its place.
func TestMeasuredWithDecodeAlone(t *testing.T) {
	f := seen()
	f.Steps["decode"] = scrape.Timing{Count: 100, Sum: 300, Mean: 3}
	f.Waits = map[string]scrape.Timing{"decode": {Count: 100, Sum: 200}}
	for steps, want := range map[string]float64{"decode": 1, "prefill decode": 3} {
		c := DefaultConfig()
		c.Pipeline.Steps = nil
		for name := range strings.FieldsSeq(steps) {
			c.Pipeline.Steps = append(c.Pipeline.Steps, conf.Step{Type: name})
		}
		m, err := newMeasured("x", f, quotient(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := mustMake(t, question(1), c, m); p.seconds(decode) != want {
			got := p.seconds(decode)
			t.Errorf("%s: decode takes %v s, want %v", steps, got, want)
		}
	}
}

// TestMeasuredWithProbes: a probe that serves takes as long as the answer.
func TestMeasuredWithProbes(t *testing.T) {
	f := seen()
	f.Steps["conditional-decode"] = scrape.Timing{Count: 200, Sum: 400, Mean: 2}
	f.Waits = map[string]scrape.Timing{"decode": {Count: 200, Sum: 100}}
	f.Probes = map[string]float64{"served": 50, "deferred": 150}
	m, err := newMeasured("x", f, quotient(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Pipeline.Steps = []conf.Step{{Type: "conditional-decode"}, {Type: "prefill"}, {Type: "decode"}}
	p, _ := mustMake(t, question(1), c, m)
	if p.load.cached.value != 0.25 || p.stay.place != 1.5+0.75*1+0.75*3 {
		t.Errorf("%+v", p.stay)
	}
}

func TestReportsAndPagesThatHaveNothing(t *testing.T) {
	for text, want := range map[string]string{
		"{":                                      "is no report of a load test",
		"{}":                                     "make it with -o and -metrics",
		`{"coordinator":{"mix":{"requests":3}}}`: "no request has come as far as decode",
	} {
		if _, err := FromReport("r.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	s, err := scrape.Parse(strings.NewReader("llm_d_coordinator_pool_size{pool=\"decode\"} 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromMetrics("m", s); err == nil || !strings.Contains(err.Error(), "-times") {
		t.Error(err)
	}
}

// TestWrongQuestions: each answer says what to do about it.
func TestWrongQuestions(t *testing.T) {
	for want, spoil := range map[string]func(q *Question){
		"-rate, more than 0":                       func(q *Question) { q.Rate = 0 },
		"-replicas must be":                        func(q *Question) { q.Replicas = 0 },
		"-sigmas must be":                          func(q *Question) { q.Sigmas = -1 },
		"-margin must be":                          func(q *Question) { q.Margin = 0.9 },
		"-wait must be":                            func(q *Question) { q.Wait = 0 },
		"-prompt must be":                          func(q *Question) { q.Prompt = number(-1) },
		"-by-url must be from 0 to 1":              func(q *Question) { q.ByURL = number(2) },
		`unknown phase "x"`:                        func(q *Question) { q.Times = map[string]time.Duration{"x": 1} },
		"decode must be from 0s":                   func(q *Question) { q.Times = map[string]time.Duration{decode: -1} },
		"longer than actors.queue_timeout":         func(q *Question) { q.Wait = time.Hour },
		"plan for more replicas (-replicas 10)":    func(q *Question) { q.Rate, q.Times = 5e5, map[string]time.Duration{decode: time.Second} },
		"MB in one replica, more than the 1048576": func(q *Question) { q.Rate, q.Images, q.ImageBytes = 10, number(100), number(1e9) },
	} {
		q := question(100)
		spoil(&q)
		if _, err := Make(q, DefaultConfig(), "", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c := DefaultConfig()
	c.Pipeline.Steps = []conf.Step{{Type: "render"}}
	if _, err := Make(question(1), c, "", nil); err == nil || !strings.Contains(err.Error(), "no decode step") {
		t.Error(err)
	}
}

// flat is text without breaks of lines.
func flat(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "#", "")), " ")
}

func TestWarnings(t *testing.T) {
	c := DefaultConfig()
	c.Gateway.MaxIdleConnsPerHost = 10
	q := question(10)
	q.Times = map[string]time.Duration{decode: time.Hour}
	_, text := mustMake(t, q, c, nil)
	text = flat(text)
	for _, want := range []string{"Mind: Decode takes longer than gateway.profiles.decode.timeout (10m0s)", "Mind: gateway.max_idle_conns_per_host is 10"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// FuzzWrite: whatever files are called, the plan is TOML.
func FuzzWrite(f *testing.F) {
	f.Add("a.toml", "r.json", 200.0, 0.3)
	f.Add("a\x00\r\nb = 1", "\u2028[x]\n", 1e-9, 1e4)
	f.Fuzz(func(t *testing.T, file, source string, rate, images float64) {
		m, err := newMeasured(source, seen(), quotient(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		q := question(rate)
		q.Images = &images
		p, err := Make(q, DefaultConfig(), file, m)
		if err != nil {
			return
		}
		var b strings.Builder
		p.Write(&b)
		if _, err := conf.Parse("plan", fmt.Append(nil, b.String(), "\n[[pipeline.steps]]\ntype = \"decode\"\n"), nil); err != nil {
			t.Errorf("%v\n%s", err, b.String())
		}
	})
}
