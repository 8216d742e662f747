package explain

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
)

// quiet is a configuration that behaves as the operator's, but reaches nothing
// outside and reads no files, and what of the operator's is shown in its place.
type quiet struct {
	config *conf.Config
	real   *conf.Config
	// render, media and async are the parameters of these steps, conditional the time-out
	// of that one.
	render      phases.RenderParams
	media       phases.MediaParams
	async       phases.AsyncBrokerParams
	conditional time.Duration
	// pair: prefill and decode are sent at once. worker is the header by which the
	// gateway names the prefill worker; "" is none.
	pair   bool
	worker string
	// secret are the headers that the operator adds, by the host that gets them:
	// where each comes from.
	secret map[string]map[string]string
}

// Defaults of the steps' parameters that are shown.
var (
	mediaDefaults  = phases.DefaultMediaParams()
	renderDefaults = phases.RenderParams{Timeout: 30 * time.Second, MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second, MaxAnswerSize: 256,
		Responses: "auto", ResponsesRecheck: 5 * time.Minute}
)

func newQuiet(cfg *conf.Config, s *subject) (*quiet, error) {
	c := *cfg
	q := &quiet{config: &c, real: cfg, media: mediaDefaults, render: renderDefaults, async: phases.DefaultAsyncBrokerParams(), secret: map[string]map[string]string{}}
	c.Server.TLS = conf.ServerTLS{MinVersion: "1.2"}
	if over := int64(len(s.sent)) - cfg.Server.MaxRequestBytes(); over > 0 && int64(len(s.Body)) <= cfg.Server.MaxRequestBytes() {
		c.Server.MaxRequestBodySize += 1 + int(over>>20) // it is the placeholders that are too large
	}
	c.Pipeline.RequestTimeout = 0 // how long this takes here says nothing
	c.Gateway.Address, c.Gateway.TLS, c.Gateway.H2C = "http://"+gatewayHost, conf.ClientTLS{}, false
	c.Gateway.Headers = q.mask(gatewayHost, cfg.Gateway.Headers)
	c.Pipeline.Steps = slices.Clone(cfg.Pipeline.Steps)
	for i, step := range c.Pipeline.Steps {
		if err := q.step(&c.Pipeline.Steps[i], step); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// step reads what is shown of a step, and has render call the stand-in.
func (q *quiet) step(into *conf.Step, step conf.Step) error {
	switch step.Type {
	case stepAsync:
		if err := step.Params.Decode(&q.async); err != nil {
			return err
		}
		if q.async.RedisURL != "" { // else the step says so
			into.Params = step.Params.With("redis_url", "redis://"+redisHost+"/0")
		}
	case stepMedia:
		return step.Params.Decode(&q.media)
	case stepConditional:
		var p phases.ConditionalParams
		err := step.Params.Decode(&p)
		q.conditional = p.Timeout
		return err
	case stepPair:
		var p phases.PrefillDecodeParams
		err := step.Params.Decode(&p)
		q.pair = true
		q.named(p.BootstrapFrom, p.BootstrapHeader)
		return err
	case stepPrefill:
		p := phases.PrefillParams{}
		err := step.Params.Decode(&p)
		q.named(p.BootstrapFrom, p.BootstrapHeader)
		return err
	case stepEncode:
		p := phases.EncodeParams{}
		err := step.Params.Decode(&p)
		q.named(p.BootstrapFrom, p.BootstrapHeader)
		return err
	case stepRender:
		if err := step.Params.Decode(&q.render); err != nil {
			return err
		}
		if q.render.Address == "" {
			return step.Params.Errorf("address", "required: the base URL of the render service")
		}
		text := q.renderStep()
		made, err := conf.Parse("render step", text, nil)
		if err != nil {
			return fmt.Errorf("render step: %w", err)
		}
		*into = made.Pipeline.Steps[0]
	}
	return nil
}

// renderStep writes the render step again, with another address and without
// files.
func (q *quiet) renderStep() []byte {
	var b bytes.Buffer
	p := q.render
	fmt.Fprintf(&b, "[[pipeline.steps]]\ntype = %q\n[pipeline.steps.params]\naddress = %q\n", stepRender, "http://"+renderHost)
	fmt.Fprintf(&b, "timeout = %q\nidle_conn_timeout = %q\nmax_idle_conns_per_host = %d\n", p.Timeout, p.IdleConnTimeout, p.MaxIdleConnsPerHost)
	fmt.Fprintf(&b, "max_answer_size = %d\nmax_total_tokens = %d\nmax_total_placeholder_tokens = %d\n",
		p.MaxAnswerSize, p.MaxTotalTokens, p.MaxTotalPlaceholderTokens)
	fmt.Fprintf(&b, "responses = %q\nresponses_recheck = %q\n", p.Responses, p.ResponsesRecheck)
	headers := q.mask(renderHost, p.Headers)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		quoted, _ := json.Marshal(name) // a string: it cannot fail, and TOML reads it like JSON
		fmt.Fprintf(&b, "headers.%s = %q\n", quoted, headers[name])
	}
	return b.Bytes()
}

// mask returns headers of the same names that hold nothing, and notes where the
// real ones come from.
func (q *quiet) mask(host string, headers map[string]string) map[string]string {
	if len(headers) == 0 {
		return nil
	}
	q.secret[host] = map[string]string{}
	masks := map[string]string{}
	for name, value := range headers {
		from := "set by the operator"
		if strings.HasPrefix(value, "env:") || strings.HasPrefix(value, "file:") {
			from = "from " + value
		}
		masks[name] = masked
		q.secret[host][http.CanonicalHeaderKey(name)] = from
	}
	return masks
}

// address returns where a leg really goes.
func (q *quiet) address(host string) string {
	if host == renderHost {
		return maskURL(strings.TrimSuffix(q.render.Address, "/"))
	}
	return strings.TrimSuffix(q.real.Gateway.Address, "/")
}

// named notes the header by which a step finds its prefill worker, if it does by one.
func (q *quiet) named(from, header string) {
	if name, ok := strings.CutPrefix(from, "header:"); ok {
		header = name
	}
	q.worker = cmp.Or(header, q.worker)
}
