package assembly

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const (
	// tryTimeout bounds the try of one route, which has nothing to compute.
	tryTimeout = 10 * time.Second
	// maxExplained is how much of a refusal is read.
	maxExplained = 8 << 10
	// scaleOut is how workers get the routes that OpenAI's API does not have.
	scaleOut = "start the workers with --enable-scale-out"
)

// Who can do without a route, and how.
const (
	needed           = ""
	onlyForGenerate  = "only clients of the generate API need it"
	onlyForResponses = "only clients of the Responses API need it"
	elsePassed       = "requests on /v1/responses are passed through"
)

// route is one that the pipeline calls.
type route struct {
	profile, path string
	// spare says what is so without it; needed: it cannot be done without.
	spare string
}

// TryRoutes tries the routes that the pipeline calls, through the gateway and the
// render service and with all that legs have in production, and prints a line for
// each. It sends bodies without content, so that nothing is computed: whatever a
// worker says to that, its route is there. The error counts the routes that are
// needed and cannot be used. Steps of other types than ours are not tried.
func (c *Coordinator) TryRoutes(ctx context.Context, to io.Writer) error {
	routes, err := c.routes()
	if err != nil {
		return err
	}
	const line = "  %-7s  %-27s  %s\n" // as wide as the longest route; no table, for a try may take its time
	fmt.Fprintln(to, "\nroutes")
	bad := 0
	for _, r := range routes {
		found, ok, none := c.try(ctx, r)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case ok:
			found = "ok: " + found
		case r.spare != needed && (none || r.spare != elsePassed): // a failure passes nothing through
			found = "warning: " + found + " (" + r.spare + ")"
		default:
			found = "FAILED: " + found
			bad++
		}
		if _, err := fmt.Fprintf(to, line, r.profile, r.path, found); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d routes cannot be used", bad, len(routes))
	}
	return nil
}

// routes lists what the pipeline's steps call.
func (c *Coordinator) routes() (routes []route, err error) {
	settings := c.Server.Settings()
	for _, s := range c.Config().Pipeline.Steps {
		of, err := c.routesOf(s)
		if err != nil {
			return nil, err
		}
		routes = append(routes, of...)
		if r, ok := responsesRoute(s.Type); ok && settings.TakesResponses() {
			routes = append(routes, r)
		}
	}
	return routes, nil
}

// routesOf lists what one step calls, but for the Responses API.
func (c *Coordinator) routesOf(s conf.Step) (routes []route, err error) {
	add := func(path, spare string) { routes = append(routes, route{s.Type, path, spare}) }
	switch s.Type {
	case stepRender:
		add(wire.Chat.RenderPath, needed)
		add(wire.Completions.RenderPath, needed)
	case stepEncode:
		openAI, err := c.openAIFormat(s)
		if err != nil {
			return nil, err
		}
		add(wire.Chat.Path, needed) // without tensors it is called even if token ids are asked for
		if !openAI {
			add(wire.GeneratePath, needed)
		}
	case stepPrefill:
		openAI, err := c.openAIFormat(s)
		if err != nil {
			return nil, err
		}
		generate := needed
		if openAI {
			generate = onlyForGenerate
		}
		add(wire.Chat.Path, needed)
		add(wire.Completions.Path, needed)
		add(wire.GeneratePath, generate)
	case stepPair:
		for _, profile := range []string{stepPrefill, stepDecode} {
			for _, path := range []string{wire.Chat.Path, wire.Completions.Path} {
				routes = append(routes, route{profile, path, needed})
			}
		}
	case stepDecode:
		add(wire.Chat.Path, needed)
		add(wire.Completions.Path, needed)
		add(wire.GeneratePath, onlyForGenerate)
	}
	return routes, nil
}

// responsesRoute returns what a step calls for requests of the Responses API.
func responsesRoute(step string) (r route, ok bool) {
	switch step {
	case stepRender:
		return route{step, wire.Responses.RenderPath, elsePassed}, true
	case stepEncode, stepPrefill, stepDecode:
		return route{step, wire.Responses.Path, onlyForResponses}, true
	}
	return route{}, false
}

// openAIFormat reports the format of the legs of an encode or prefill step.
func (c *Coordinator) openAIFormat(s conf.Step) (bool, error) {
	format := c.Config().Pipeline.UseOpenAIFormat
	if s.Params == nil {
		return format, nil
	}
	params := *s.Params // Decode notes what differs from defaults, and these are not the step's
	if s.Type == stepEncode {
		p := phases.EncodeParams{UseOpenAIFormat: format}
		err := params.Decode(&p)
		return p.UseOpenAIFormat, err
	}
	p := phases.PrefillParams{UseOpenAIFormat: format}
	err := params.Decode(&p)
	return p.UseOpenAIFormat, err
}

// try tries one route, and says what came of it, whether legs can use it, and whether
// there is none.
func (c *Coordinator) try(ctx context.Context, r route) (found string, ok, none bool) {
	u := c.current.Load().upstream(r.profile)
	if u == nil {
		return "no step has made its upstream", false, false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, wire.Faultf(wire.UpstreamTimeout, "no answer within %v", tryTimeout))
	defer cancel()
	answer, _, err := u.Open(ctx, gateway.Leg{Path: r.path, ID: "check-" + rand.Text(), Unjudged: true,
		Body: func(string) wire.Payload { return wire.NewPayload([]byte("{}")) }})
	if err != nil {
		return err.Error(), false, false
	}
	defer answer.Close()
	text, _ := io.ReadAll(io.LimitReader(answer, maxExplained)) // only an explanation: what is missing of it is no loss
	found, ok = r.verdict(answer.Status, text)
	return found, ok, gateway.IsNoRoute(answer.Status, text)
}

// verdict says what an answer to an empty body means.
func (r route) verdict(status int, body []byte) (found string, ok bool) {
	found = fmt.Sprintf("answered %d", status)
	switch {
	case status == http.StatusNotFound && gateway.ScaleOutRoute(r.path) && isMissingRoute(body):
		return found + ", the worker has no such route: " + scaleOut, false
	case status == http.StatusNotFound && isMissingRoute(body):
		return found + ", the worker has no such route", false
	case status == http.StatusNotFound:
		return found + ", but not as a worker without the route does: see the routes of the gateway", false
	case status == http.StatusLoopDetected:
		return found + ", the gateway sends it back to the coordinator: its route for the profile header is missing", false
	case status/100 == 3:
		return found + ", and legs follow no redirect", false
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return found + ", so clients must bring a credential that you have not configured", true
	}
	return found, status < 500 && status != http.StatusMethodNotAllowed
}

// isMissingRoute reports whether a 404 is that of the web framework under workers:
// its own have an error object, a gateway's have neither.
func isMissingRoute(body []byte) bool {
	return wire.Valid(body) == nil && wire.Lookup(body, "detail") != nil
}
