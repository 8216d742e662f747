package trace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/llm-coordinator/coordinator/transport/journal"
)

// Variables of OpenTelemetry that are looked at here. What is set to nothing is
// not set.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envHeaders        = "OTEL_EXPORTER_OTLP_HEADERS"
	envTracesHeaders  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	envQueue          = "OTEL_BSP_MAX_QUEUE_SIZE"
	envBatch          = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
	envDelay          = "OTEL_BSP_SCHEDULE_DELAY"
	envService        = "OTEL_SERVICE_NAME"
)

const protocol = "http/protobuf"

// environ finds variables.
type environ func(name string) (value string, ok bool)

func (e environ) get(name string) string {
	value, _ := e(name)
	return strings.TrimSpace(value)
}

// first returns the first of these variables that is set, and its name.
func (e environ) first(names ...string) (name, value string) {
	for _, name := range names {
		if value := e.get(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// settings are what the environment asks for.
type settings struct {
	endpoint string // as a whole
	sampler  sampler
	queue    int // how many spans may wait
	service  string
}

// settings reads the environment. They are nil if it asks for no traces.
func (e environ) settings() (*settings, error) {
	name, endpoint := e.first(envTracesEndpoint, envEndpoint)
	exporter := e.get(envExporter)
	if endpoint == "" || exporter == "none" || strings.EqualFold(e.get(envDisabled), "true") {
		return nil, nil
	}
	if exporter != "" && exporter != "otlp" {
		return nil, fmt.Errorf("%s is %q: traces can only be exported with otlp, or not at all with none", envExporter, exporter)
	}
	if by, asked := e.first(envTracesProtocol, envProtocol); asked != "" && asked != protocol {
		return nil, fmt.Errorf("%s is %q: only %s is spoken: set it to that, and the endpoint to the receiver's port for HTTP (mostly 4318)", by, asked, protocol)
	}
	s := &settings{service: e.get(envService)}
	var err error
	if s.endpoint, err = address(endpoint, name == envEndpoint); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, name := range []string{envHeaders, envTracesHeaders} {
		if err := checkHeaders(e.get(name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if s.queue, err = e.sizes(); err != nil {
		return nil, err
	}
	s.sampler, err = e.sampler()
	return s, err
}

// address returns the URL that traces are sent to. Errors do not quote it, for it
// may hold a password.
func address(endpoint string, isBase bool) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("it must be a URL that begins with http:// or https://")
	}
	if isBase {
		u = u.JoinPath("v1", "traces")
	}
	return u.String(), nil
}

// checkHeaders refuses what the library would print, credentials and all, and go
// on without.
func checkHeaders(list string) error {
	if list == "" {
		return nil
	}
	for pair := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !ok || err != nil || strings.TrimSpace(name) == "" {
			return errors.New("it must be name=value, or several with commas between, percent-encoded")
		}
	}
	return nil
}

// sizes checks the numbers of the batch processor, and returns how large its
// queue is.
func (e environ) sizes() (queue int, err error) {
	queue = sdk.DefaultMaxQueueSize
	for _, name := range []string{envQueue, envBatch, envDelay} {
		text := e.get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%s is %q: it must be a number from 1 on", name, text)
		}
		if name == envQueue {
			queue = n
		}
	}
	return queue, nil
}

// sampler says which traces are recorded.
type sampler struct {
	// byParent: what the client has decided counts.
	byParent bool
	root     sdk.Sampler
}

// sampler is the one that the environment names.
func (e environ) sampler() (s sampler, err error) {
	name := strings.ToLower(e.get(envSampler))
	own, byParent := strings.CutPrefix(name, "parentbased_")
	s.byParent = byParent || name == ""
	switch own {
	case "", "always_on":
		s.root = sdk.AlwaysSample()
	case "always_off":
		s.root = sdk.NeverSample()
	case "traceidratio":
		ratio, text := 1.0, e.get(envSamplerArg)
		if text != "" {
			if ratio, err = strconv.ParseFloat(text, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return s, fmt.Errorf("%s is %q: it must be a number from 0 to 1", envSamplerArg, text)
			}
		}
		s.root = sdk.TraceIDRatioBased(ratio)
	}
	if s.root == nil || name == "parentbased_" {
		return s, fmt.Errorf("%s is %q: known are always_on, always_off, traceidratio, and each of them with parentbased_ before it", envSampler, name)
	}
	return s, nil
}

// records reports whether a trace is recorded.
func (s sampler) records(t journal.Trace) bool {
	if s.byParent && t.Parent != (journal.SpanID{}) {
		return t.Sampled()
	}
	return s.root.ShouldSample(sdk.SamplingParameters{ParentContext: context.Background(), TraceID: otel.TraceID(t.ID)}).Decision == sdk.RecordAndSample
}
