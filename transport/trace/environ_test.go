package trace

import (
	"maps"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/journal"
)

// from is an environment of these variables.
func from(vars map[string]string) environ {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

func TestOffUnlessAskedFor(t *testing.T) {
	const at = "http://127.0.0.1:4318"
	for name, vars := range map[string]map[string]string{
		"nothing":                {},
		"an empty endpoint":      {envEndpoint: " "},
		"no endpoint, but more":  {envProtocol: "grpc", envSampler: "odd", envExporter: "otlp"},
		"switched off":           {envEndpoint: at, envDisabled: "TRUE", envProtocol: "grpc"},
		"no exporter":            {envEndpoint: at, envExporter: "none", envProtocol: "grpc"},
		"no exporter for traces": {envTracesEndpoint: at, envExporter: "none"},
	} {
		x, err := New(from(vars), "test", nil)
		if x != nil || err != nil {
			t.Errorf("%s: %v, %v", name, x, err)
		}
		if x.Sampler() != nil || x.Dropped() != 0 {
			t.Errorf("%s: nothing does something", name)
		}
		x.Close()
	}
}

func TestVariablesThatCannotBeUsed(t *testing.T) {
	for _, tt := range []struct {
		name, value, want string
	}{
		{envProtocol, "grpc", `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": only http/protobuf is spoken`},
		{envTracesProtocol, "http/json", `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is "http/json": only http/protobuf is spoken`},
		{envExporter, "zipkin", `OTEL_TRACES_EXPORTER is "zipkin"`},
		{envExporter, "otlp,console", `OTEL_TRACES_EXPORTER is "otlp,console"`},
		{envSampler, "odd", `OTEL_TRACES_SAMPLER is "odd"`},
		{envSampler, "parentbased_", `OTEL_TRACES_SAMPLER is "parentbased_"`},
		{envSampler, "jaeger_remote", `OTEL_TRACES_SAMPLER is "jaeger_remote"`},
		{envTracesEndpoint, "secret:4317", `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: it must be a URL`},
		{envEndpoint, "unix:///secret", `OTEL_EXPORTER_OTLP_ENDPOINT: it must be a URL`},
		{envHeaders, "authorization Bearer secret", "OTEL_EXPORTER_OTLP_HEADERS: it must be name=value"},
		{envTracesHeaders, "a=b,secret", "OTEL_EXPORTER_OTLP_TRACES_HEADERS: it must be name=value"},
		{envHeaders, "a=%zzsecret", "OTEL_EXPORTER_OTLP_HEADERS: it must be name=value"},
		{envQueue, "0", `OTEL_BSP_MAX_QUEUE_SIZE is "0"`},
		{envBatch, "-1", `OTEL_BSP_MAX_EXPORT_BATCH_SIZE is "-1"`},
		{envDelay, "5s", `OTEL_BSP_SCHEDULE_DELAY is "5s"`},
	} {
		vars := map[string]string{envEndpoint: "http://127.0.0.1:4318", tt.name: tt.value}
		x, err := New(from(vars), "test", nil)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: %v, want %s…", tt.name, tt.value, err, tt.want)
		}
		x.Close()
	}
	for _, arg := range []string{"2", "-0.1", "NaN", "x"} {
		vars := map[string]string{envEndpoint: "http://127.0.0.1:4318", envSampler: "traceidratio", envSamplerArg: arg}
		if _, err := from(vars).settings(); err == nil || !strings.HasPrefix(err.Error(), "OTEL_TRACES_SAMPLER_ARG is ") {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, tt := range []struct {
		vars map[string]string
		want string
	}{
		{map[string]string{envEndpoint: "http://c:4318"}, "http://c:4318/v1/traces"},
		{map[string]string{envEndpoint: "https://c/otlp/"}, "https://c/otlp/v1/traces"},
		{map[string]string{envEndpoint: "http://c:4318", envTracesEndpoint: "https://t/own"}, "https://t/own"},
		{map[string]string{envTracesEndpoint: "http://t:4318"}, "http://t:4318"}, // as it is: what OpenTelemetry says
		{map[string]string{envEndpoint: "http://c", envProtocol: "grpc", envTracesProtocol: "http/protobuf"}, "http://c/v1/traces"},
	} {
		s, err := from(tt.vars).settings()
		if err != nil || s.endpoint != tt.want {
			t.Errorf("%v: %+v, %v", tt.vars, s, err)
		}
	}
}

// TestSamplers: what each records of new traces, and of those that a client has
// decided on.
func TestSamplers(t *testing.T) {
	const n = 2000
	client := journal.NewSpanID()
	for _, tt := range []struct {
		name, arg           string
		fresh, without, yes float64 // the share that is recorded: new ones, not sampled by the client, sampled
	}{
		{"", "", 1, 0, 1},
		{"parentbased_always_on", "", 1, 0, 1},
		{"parentbased_always_off", "", 0, 0, 1},
		{"parentbased_traceidratio", "0.01", 0.01, 0, 1},
		{"always_on", "", 1, 1, 1},
		{"always_off", "", 0, 0, 0},
		{"TraceIDRatio", "0.25", 0.25, 0.25, 0.25},
		{"traceidratio", "", 1, 1, 1},
	} {
		s, err := from(map[string]string{envSampler: tt.name, envSamplerArg: tt.arg}).sampler()
		if err != nil {
			t.Fatal(err)
		}
		share := func(parent journal.SpanID, flags byte) float64 {
			recorded := 0
			for range n {
				if s.records(journal.Trace{ID: journal.NewTraceID(), Parent: parent, Flags: flags}) {
					recorded++
				}
			}
			return float64(recorded) / n
		}
		for what, got := range maps.All(map[string][2]float64{
			"new": {share(journal.SpanID{}, 0), tt.fresh}, "unsampled": {share(client, 0), tt.without}, "sampled": {share(client, 1), tt.yes}}) {
			if diff := got[0] - got[1]; diff < -0.06 || diff > 0.06 || (got[1] == 0) != (got[0] == 0) || (got[1] == 1) != (got[0] == 1) {
				t.Errorf("%s %s, %s: %v are recorded, want %v", tt.name, tt.arg, what, got[0], got[1])
			}
		}
	}
}
