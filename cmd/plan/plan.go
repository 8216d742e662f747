// Package plan works out how large the pools of a coordinator have to be for a rate
// of requests, and what would fill up first if the rate grew.
//
// It goes by Little's law: so many are busy on average as come each second, times how
// long each takes. To that it adds room for chance and for load that is not spread
// evenly. Times are given, measured, or assumed, and it says which. What the workers
// behind the gateway can do it does not know: pools bound what is sent to them.
package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
)

// Question is what is asked for. What is nil was not said: it is taken from what was
// measured, or assumed.
type Question struct {
	// Rate is how many requests come each second, to all replicas together.
	Rate     float64
	Replicas int
	// Prompt and Output are tokens, Images are images, of a request on average.
	Prompt, Output, Images *float64
	// ImageBytes are those of an image before it is base64, TensorBytes those of its
	// rendered tensor. ByURL is the part of images that are named by URL.
	ImageBytes, TensorBytes, ByURL *float64
	// Cached is the part of requests that a conditional decode serves.
	Cached *float64
	// Times are those of a phase's work on one request (of media and encode: on one
	// image), by the names in Phases.
	Times map[string]time.Duration
	// Sigmas is how much chance there is room for, in standard deviations; Margin is
	// what the result is multiplied by; Wait is how much of arrivals a queue takes.
	Sigmas, Margin float64
	Wait           time.Duration
}

// Names of work whose time can be given.
const (
	media   = phases.PoolMedia
	render  = phases.PoolRender
	probe   = "probe" // a conditional decode
	encode  = phases.PoolEncode
	prefill = phases.PoolPrefill
	decode  = phases.PoolDecode
)

// Phases are the names of the work that takes time, in their usual order.
var Phases = []string{media, render, probe, encode, prefill, decode}

// pair is the step that sends both legs at once. Its places are taken and given back
// as those of the two steps are, but for the moment before prefill's leg is sent.
const pair = "prefill-decode"

// works says which step of a configuration is which work.
var works = map[string]string{"replace-media-urls": media, "render": render, "conditional-decode": probe,
	"encode": encode, "prefill": prefill, "decode": decode}

// Validate reports what of a question makes no sense.
func (q Question) Validate() error {
	switch {
	case !(q.Rate > 0) || q.Rate > 1e6:
		return errors.New("how many requests a second? -rate, more than 0, at most a million")
	case q.Replicas < 1:
		return errors.New("-replicas must be at least 1")
	case !(q.Sigmas >= 0) || q.Sigmas > 10:
		return errors.New("-sigmas must be from 0 (no room for chance) to 10")
	case !(q.Margin >= 1) || q.Margin > 10:
		return errors.New("-margin must be from 1 (none) to 10")
	case q.Wait <= 0:
		return errors.New("-wait must be more than 0s")
	}
	for _, v := range []struct {
		flag  string
		value *float64
		most  float64
	}{
		{"prompt", q.Prompt, 1e8}, {"output", q.Output, 1e8}, {"images", q.Images, 1e4}, {"image-bytes", q.ImageBytes, 1e9},
		{"tensor-bytes", q.TensorBytes, 1e10}, {"by-url", q.ByURL, 1}, {"cached", q.Cached, 1},
	} {
		if v.value != nil && (!(*v.value >= 0) || *v.value > v.most) {
			return fmt.Errorf("-%s must be from 0 to %g", v.flag, v.most)
		}
	}
	for name, t := range q.Times {
		if !slices.Contains(Phases, name) {
			return fmt.Errorf("-times: unknown phase %q: there are %v", name, Phases)
		}
		if t < 0 || t > 24*time.Hour {
			return fmt.Errorf("-times: %s must be from 0s to 24h", name)
		}
	}
	return nil
}

// Plan is the answer to a question.
type Plan struct {
	question Question
	config   *conf.Config
	file     string // of the configuration; "": there is none
	measured *Measured
	load     workload
	times    []workTime // of the work that there is, in the order of the steps
	stay     stay
	pools    []pool
	inflight inflight
	bytes    bytes
	warnings []string
}

// Make answers a question for the pipeline of a configuration. file is what that is
// called; "" means that there was none, and config is [DefaultConfig]. measured may
// be nil.
func Make(q Question, config *conf.Config, file string, measured *Measured) (*Plan, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if limit := config.Actors.QueueTimeout; q.Wait > limit {
		return nil, fmt.Errorf("-wait %v is longer than actors.queue_timeout (%v): what waits longer is refused", q.Wait, limit)
	}
	p := &Plan{question: q, config: config, file: file, measured: measured}
	steps, tensors, err := stepsOf(config)
	if err != nil {
		return nil, err
	}
	p.load = p.workload(steps)
	for _, step := range steps {
		p.times = append(p.times, p.time(works[step]))
	}
	p.stay = p.stayOf()
	p.sizePools()
	p.sizeInflight()
	p.sizeBytes(tensors)
	p.warn()
	return p, p.possible()
}

// DefaultConfig is the configuration that is planned for without a file: all
// defaults, and the whole pipeline but for conditional decode.
func DefaultConfig() *conf.Config {
	c := conf.Default()
	for _, step := range []string{"replace-media-urls", "render", "encode", "prefill", "decode"} {
		c.Pipeline.Steps = append(c.Pipeline.Steps, conf.Step{Type: step})
	}
	return &c
}

// stepsOf returns the steps whose work is known, in their order, and whether legs
// carry rendered tensors.
func stepsOf(c *conf.Config) (steps []string, tensors bool, err error) {
	for _, s := range c.Pipeline.Steps {
		if s.Type == pair {
			steps = append(steps, prefill, decode)
			continue
		}
		if works[s.Type] == "" {
			continue // a phase of the operator's own: its pool is not known
		}
		steps = append(steps, s.Type)
		openAI := true
		switch s.Type {
		case "encode":
			params := phases.EncodeParams{UseOpenAIFormat: c.Pipeline.UseOpenAIFormat}
			err = s.Params.Decode(&params)
			openAI = params.UseOpenAIFormat
		case "prefill":
			params := phases.PrefillParams{UseOpenAIFormat: c.Pipeline.UseOpenAIFormat}
			err = s.Params.Decode(&params)
			openAI = params.UseOpenAIFormat
		}
		if err != nil {
			return nil, false, err
		}
		tensors = tensors || !openAI
	}
	if !slices.Contains(steps, "decode") {
		return nil, false, errors.New("the pipeline has no decode step: there is nothing to plan")
	}
	return steps, tensors, nil
}

// rate is what comes to one replica.
func (p *Plan) rate() float64 { return p.question.Rate / float64(p.question.Replicas) }

// has reports whether there is such work.
func (p *Plan) has(work string) bool {
	return slices.ContainsFunc(p.times, func(t workTime) bool { return t.work == work })
}

// seconds returns how long work takes; 0 if there is none such.
func (p *Plan) seconds(work string) float64 {
	for _, t := range p.times {
		if t.work == work {
			return t.seconds
		}
	}
	return 0
}

// The most that the configuration takes.
const (
	mostWorkers = 100_000
	mostMB      = 1 << 20
)

// possible reports what is more than a configuration takes.
func (p *Plan) possible() error {
	most, of := 0, ""
	for _, pl := range p.pools {
		if n := max(pl.size, pl.queue); n > most {
			most, of = n, pl.name
		}
	}
	if most > mostWorkers {
		return fmt.Errorf("%s needs %d places in one replica, more than the %d that there may be: plan for more replicas (-replicas %d)",
			of, most, mostWorkers, p.question.Replicas*int(math.Ceil(float64(most)/mostWorkers)))
	}
	if p.bytes.mb > mostMB {
		return fmt.Errorf("requests would hold %d MB in one replica, more than the %d that there may be: plan for more replicas", p.bytes.mb, mostMB)
	}
	return nil
}

// warn notes what the sizes alone do not make good.
func (p *Plan) warn() {
	note := func(format string, args ...any) { p.warnings = append(p.warnings, fmt.Sprintf(format, args...)) }
	if limit := p.config.Gateway.TimeoutOf(decode); p.seconds(decode) > limit.Seconds() {
		note("Decode takes longer than gateway.profiles.decode.timeout (%v): answers that are not streamed would fail.", limit)
	}
	if n := p.config.Gateway.MaxIdleConnsPerHost; n > 0 && float64(n) < p.connections() {
		note("gateway.max_idle_conns_per_host is %d, and %.0f connections are busy on average: those beyond are opened anew each time. 0 keeps all.", n, p.connections())
	}
	if p.measured != nil {
		p.warnings = append(p.warnings, p.measured.doubts()...)
	}
}

// connections are those to the gateway that are busy on average.
func (p *Plan) connections() (sum float64) {
	for _, pl := range p.pools {
		switch pl.name {
		case encode, prefill:
			sum += pl.busy
		case decode: // its places are taken before its legs are sent
			sum += p.rate() * (p.seconds(probe) + p.seconds(decode))
		}
	}
	return sum
}
