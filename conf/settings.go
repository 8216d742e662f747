package conf

import "time"

// Config is everything an operator can set. [Default] has the values and why; coordinator.toml lists the keys.
//
// It is not to be changed once requests run on it. Copies share its slices and pointers.
type Config struct {
	// LogLevel is 1 warn, 2 info, 3 verbose, 4 debug, 5 trace.
	LogLevel int `toml:"log_level"`
	// LogFormat is "json" or "text".
	LogFormat string `toml:"log_format"`

	Server   Server   `toml:"server"`
	Admin    Admin    `toml:"admin"`
	Gateway  Gateway  `toml:"gateway"`
	Actors   Actors   `toml:"actors"`
	Pipeline Pipeline `toml:"pipeline"`

	origins map[string]origin // of each key that was set, but for steps and their params
}

// Server is the listener for clients. All its durations but DrainDelay are longer than 0.
type Server struct {
	// ListenAddr is host:port; without a host every interface, with port 0 a free port.
	ListenAddr string `toml:"listen_addr"`
	// ReadTimeout bounds the reading of one request, body included.
	ReadTimeout time.Duration `toml:"read_timeout"`
	// WriteTimeout bounds each write of an answer, not the answer as a whole.
	WriteTimeout time.Duration `toml:"write_timeout"`
	// IdleTimeout is how long a connection may wait for its next request.
	IdleTimeout time.Duration `toml:"idle_timeout"`
	// ShutdownTimeout is how long requests in flight may go on after a signal to stop.
	ShutdownTimeout time.Duration `toml:"shutdown_timeout"`
	// DrainDelay is how long the listener stays open, not ready, after a signal to stop; 0 closes it at once.
	DrainDelay time.Duration `toml:"drain_delay"`
	// MaxRequestBodySize is in MB of 2^20 bytes.
	MaxRequestBodySize int `toml:"max_request_body_size"`
	// PassthroughRoutes are paths, or prefixes that end with "/*", that are passed through to a decode worker.
	PassthroughRoutes []string `toml:"passthrough_routes"`
	// TenantHeader is the header that says whom a request is for; "" means that all clients are one tenant.
	TenantHeader string `toml:"tenant_header"`
	// TLS is off unless its files are named.
	TLS ServerTLS `toml:"tls"`
}

// MaxRequestBytes returns MaxRequestBodySize in bytes.
func (s Server) MaxRequestBytes() int64 {
	return int64(s.MaxRequestBodySize) << 20
}

// Admin is the second listener: metrics, status, profiling.
type Admin struct {
	// ListenAddr is host:port; "" means no such listener.
	ListenAddr string `toml:"listen_addr"`
	// Token that operators show; "" asks for none. It is literal, env:NAME or
	// file:PATH.
	Token Secret `toml:"token"`
}

// Secret is a value that is shown to nobody.
type Secret string

// Actors is how much runs at a time.
type Actors struct {
	// QueueTimeout is the longest that a task waits in a pool's queue; longer than 0.
	QueueTimeout time.Duration `toml:"queue_timeout"`
	// MaxInflightRequests is how many requests may be in the house; 0 leaves it to Inflight.
	MaxInflightRequests int `toml:"max_inflight_requests"`
	// MaxWaitingRequests is how many requests of an async-broker step may be in the house besides; at least 1.
	MaxWaitingRequests int `toml:"max_waiting_requests"`
	// MaxInflightSize is what request bodies, media and rendered tensors may hold together, in MB of 2^20 bytes.
	MaxInflightSize int `toml:"max_inflight_size"`
	// Pools are the workers.
	Pools Pools `toml:"pools"`
}

// Inflight returns MaxInflightRequests or, if that is 0, as many as the decode pool can work on and queue: every
// request needs a place there, so more could not get one anyway.
func (a Actors) Inflight() int {
	if a.MaxInflightRequests > 0 {
		return a.MaxInflightRequests
	}
	return a.Pools.Decode.Size + a.Pools.Decode.Queue
}

// MaxInflightBytes returns MaxInflightSize in bytes.
func (a Actors) MaxInflightBytes() int64 { return int64(a.MaxInflightSize) << 20 }

// Pools are the worker pools by the phase they work for.
type Pools struct {
	Media       Pool `toml:"media"`
	Render      Pool `toml:"render"`
	Encode      Pool `toml:"encode"`
	Prefill     Pool `toml:"prefill"`
	Decode      Pool `toml:"decode"`
	Passthrough Pool `toml:"passthrough"`
	// Release is for tasks that outlive their request: telling a decode worker to let go of KV nobody will read.
	Release Pool `toml:"release"`
	// Broker is for the commands of requests that may wait.
	Broker Pool `toml:"broker"`
}

// Pool is the size of one worker pool.
type Pool struct {
	// Size is how many tasks are at work at a time; at least 1.
	Size int `toml:"size"`
	// Queue is how many tasks may wait; with 0 a task is refused unless a worker is free.
	Queue int `toml:"queue"`
}

// Pipeline is the ordered list of phases that each request goes through.
type Pipeline struct {
	// KVConnector names how prefill's KV reaches decode, unless a step says otherwise. Not empty.
	KVConnector string `toml:"kv_connector"`
	// ECConnector names how the embeddings of encode reach prefill, unless a step says otherwise. Not empty.
	ECConnector string `toml:"ec_connector"`
	// UseOpenAIFormat is the format of encode and prefill legs, unless a step says otherwise: the client's own
	// protocol if true, token ids and rendered tensors if false.
	UseOpenAIFormat bool `toml:"use_openai_format"`
	// RequestTimeout bounds a request from its headers to the first byte of its answer; 0 means no limit. A client
	// may ask for less.
	RequestTimeout time.Duration `toml:"request_timeout"`
	// KVLease is how long a worker keeps a prefill's KV for its decode; longer than 0.
	KVLease time.Duration `toml:"kv_lease"`
	// ForwardResponseHeaders are the headers of answers of render, encode and prefill that a request's later legs
	// carry; empty means none. Whether they are names of headers, and may be forwarded, is not checked here.
	ForwardResponseHeaders []string `toml:"forward_response_headers"`
	// MaxBatchSize is how many prompts a completions request may have, each of which is one of those in the house;
	// with 1 an array of prompts is refused.
	MaxBatchSize int `toml:"max_batch_size"`
	// Steps run in their order; [Parse] returns at least one.
	Steps []Step `toml:"steps"`
}
