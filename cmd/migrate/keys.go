package migrate

import (
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/phases"
)

// key is one that the llm-d coordinator has.
type key struct {
	name string
	kind kind
	// note is what differs here, for a key that is set; absent for one that is not.
	note, absent []string
	// dropped, if set, is why it is not taken over.
	dropped string
	// of are the keys of a record or of records, or the one kind of value of what is
	// named.
	of []key
}

func notes(lines ...string) []string { return lines }

var topKeys = []key{{name: "log_level", kind: integer}}

var serverKeys = []key{
	{name: "listen_addr", kind: text},
	{name: "read_timeout", kind: positive, note: notes("for one whole request, its body included; then 408")},
	{name: "write_timeout", kind: positive, note: notes("here for each write: a client that takes nothing for so long is dropped; a whole answer has no limit")},
}

var gatewayKeys = []key{
	{name: "address", kind: address, note: notes("here without a path")},
	{name: "timeout", kind: positive, note: notes("here up to a leg's headers, a parsed answer's end, a stream's first event; decode has its own, see below")},
	{name: "max_idle_conns_per_host", kind: integer, note: notes("here 0 would do: as many as the pools that call the gateway can use"),
		absent: notes("max_idle_conns_per_host: the default is 100 there, here 0: as many as the pools that call the gateway can use")},
	{name: "idle_conn_timeout", kind: positive},
}

var pipelineKeys = []key{
	{name: "kv_connector", kind: text},
	{name: "ec_connector", kind: text},
	{name: "use_openai_format", kind: boolean},
	{name: "forward_response_headers", kind: texts, note: notes("x-llm-d-revision-decision-id is sent with them; with [] neither is")},
}

// stepKeys are the parameters of steps by type. A type that is not among them is
// not known.
var stepKeys = map[string][]key{
	"async-broker": asyncKeys,
	"replace-media-urls": {
		{name: "download_timeout", kind: positive, absent: defaultHere("download_timeout", "10s")},
		{name: "max_concurrent_downloads", kind: integer, absent: defaultHere("max_concurrent_downloads", "10, of one request")},
		{name: "max_multimodal_entries", kind: integer, note: notes("here 0 is no limit"), absent: defaultHere("max_multimodal_entries", "0, no limit")},
	},
	"render": {
		{name: "address", kind: address},
		{name: "timeout", kind: positive, absent: defaultHere("timeout", "30s")},
		{name: "max_total_tokens", kind: integer, note: notes("here 0 is no limit"), absent: defaultHere("max_total_tokens", "0, no limit")},
		{name: "max_total_placeholder_tokens", kind: integer, note: notes("here 0 is no limit"), absent: defaultHere("max_total_placeholder_tokens", "0, no limit")},
	},
	"conditional-decode": {},
	"encode": {
		{name: "max_parallel", kind: integer, absent: defaultHere("max_parallel", "8, of one request")},
		{name: "use_openai_format", kind: boolean},
		{name: "ec_connector", kind: text},
	},
	"prefill": {
		{name: "use_openai_format", kind: boolean},
		{name: "kv_connector", kind: text},
		{name: "ec_connector", kind: text},
	},
	"decode":     {{name: "kv_connector", kind: text}},
	stepTogether: {{name: "kv_connector", kind: text}, {name: "ec_connector", kind: text}},
}

func defaultHere(name, value string) []string {
	return notes(name + ": the default here is " + value + "; compare it with what you have")
}

// stepNotes are what differs about a step whatever its parameters.
var stepNotes = map[string][]string{
	"async-broker": {
		"The headers' names are x-llm-d-async-mode, x-llm-d-tenant and x-llm-d-request-timeout-seconds where they are not set.",
		"Versions of the llm-d coordinator before the middle of 2026 had X-AP-Mode, X-Team and X-Request-Timeout-Seconds: if your",
		"clients send those, set mode_header, tenant_header and timeout_header. docs/async.md says what the broker has to agree on.",
	},
	"replace-media-urls": {
		"Here images have at most 10 MB each, audio 25 and videos 50 (max_image_download_size and its like), inlined ones too,",
		"and are fetched from public addresses only: allowed_networks lets others in, allowed_domains narrows them. Proxies are ignored.",
	},
	stepTogether: {
		"With kv-sglang the steps prefill and decode are one here, which sends both legs at once. The coordinator has to know the",
		"prefill worker: set bootstrap_from (\"reserve\" with bootstrap_header, \"header:<name>\" or \"static:<host>\"; docs/operations.md).",
	},
	"conditional-decode": {"timeout is new: of the probe; without it decode's"},
	"prefill":            {"release_on_abort is new: KV that no decode will fetch is let go of, with connectors that pin it"},
}

// injected are the parameters that every step may have there, because they are put
// into all of them; steps that are not in our table for one take no notice of it.
var injected = []string{"kv_connector", "ec_connector", "use_openai_format"}

// keysOf returns the parameters of a step, with those that have no effect on it.
func keysOf(kind string) []key {
	keys := slices.Clone(stepKeys[kind])
	for _, name := range injected {
		if !slices.ContainsFunc(keys, func(k key) bool { return k.name == name }) {
			keys = append(keys, key{name: name, dropped: "it has no effect on a step of this type"})
		}
	}
	return keys
}

// ourParams are our own parameters of steps.
var ourParams = map[string]any{
	"async-broker": phases.AsyncBrokerParams{}, "replace-media-urls": phases.MediaParams{}, "render": phases.RenderParams{}, "conditional-decode": phases.ConditionalParams{},
	"encode": phases.EncodeParams{}, "prefill": phases.PrefillParams{}, "decode": phases.DecodeParams{},
	stepTogether: phases.PrefillDecodeParams{},
}

// ours reports whether there is a key, or a table, of that name here.
func ours(path, name string) bool {
	keys, full := conf.Keys(conf.Config{}), joined(path, name)
	if kind, ok := strings.CutPrefix(path, stepPath); ok {
		if ourParams[kind] == nil {
			return false
		}
		keys, full = conf.Keys(ourParams[kind]), name
	}
	return slices.ContainsFunc(keys, func(k string) bool { return k == full || strings.HasPrefix(k, full+".") })
}
