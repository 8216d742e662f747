package conf

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The highest values that make sense. Beyond them a unit was mistaken or a digit too many typed.
const (
	maxTime     = 24 * time.Hour
	maxWorkers  = 100_000   // of a pool; of a queue and of idle connections too
	maxInflight = 1_000_000 // requests of one replica
	maxBodySize = 4095      // MB; a body is known by 32-bit places in it
	// maxInflightSize is a terabyte, in MB.
	maxInflightSize = 1 << 20
	maxBatch        = 10_000    // prompts of a request
	maxCount        = 1_000_000 // of requests and failures that a breaker counts
)

// A validator checks values one by one. Only what somebody set can be at fault: defaults are right, and what a
// profile inherits is reported where it was set.
type validator struct {
	origins map[string]origin
	faults  *faults
}

// validate adds what is wrong with the values of c to found.
func (c *Config) validate(found *faults) {
	v := validator{origins: c.origins, faults: found}
	v.count("log_level", c.LogLevel, 1, 5)
	if c.LogFormat != "json" && c.LogFormat != "text" {
		v.fail("log_format", `must be "json" or "text", got %q`, c.LogFormat)
	}
	v.server(c.Server)
	if c.Admin.ListenAddr != "" {
		v.listenAddr("admin.listen_addr", c.Admin.ListenAddr)
	}
	v.gateway(c.Gateway)
	v.actors(c.Actors)
	v.pipeline(c.Pipeline)
	v.batch(c.Pipeline.MaxBatchSize, c.Actors.Inflight())
}

func (v validator) pipeline(p Pipeline) {
	if p.KVConnector == "" {
		v.fail("pipeline.kv_connector", "must not be empty")
	}
	if p.ECConnector == "" {
		v.fail("pipeline.ec_connector", "must not be empty")
	}
	v.duration("pipeline.request_timeout", p.RequestTimeout)
	v.positive("pipeline.kv_lease", p.KVLease)
}

// batch checks the size of batches: one of more prompts than there may be requests would never be let in.
func (v validator) batch(n, inflight int) {
	v.count("pipeline.max_batch_size", n, 1, maxBatch)
	if n > 1 && n <= maxBatch && n > inflight {
		v.fail("pipeline.max_batch_size", "must be at most %d, as many requests as may be in flight (actors.max_inflight_requests, else size and queue of actors.pools.decode)", inflight)
	}
}

func (v validator) server(s Server) {
	v.listenAddr("server.listen_addr", s.ListenAddr)
	v.positive("server.read_timeout", s.ReadTimeout)
	v.positive("server.write_timeout", s.WriteTimeout)
	v.positive("server.idle_timeout", s.IdleTimeout)
	v.positive("server.shutdown_timeout", s.ShutdownTimeout)
	v.duration("server.drain_delay", s.DrainDelay)
	v.count("server.max_request_body_size", s.MaxRequestBodySize, 1, maxBodySize)
	if s.TenantHeader != "" && !isToken(s.TenantHeader) {
		v.fail("server.tenant_header", `want the name of an HTTP header or "", got %q`, s.TenantHeader)
	}
	v.serverTLS(s.TLS)
	for _, route := range s.PassthroughRoutes {
		if wrong := routeFault(route); wrong != "" {
			v.fail("server.passthrough_routes", "%q: %s", route, wrong)
		}
	}
}

// routeFault says what is wrong with a pass-through route, or "".
func routeFault(route string) string {
	path := strings.TrimSuffix(route, "/*")
	switch {
	case !strings.HasPrefix(route, "/"):
		return "a path begins with a slash"
	case strings.ContainsAny(path, "*?#%\\ "):
		return `want a path, or a path that ends with "/*" for all below it`
	case strings.Contains(route, "//") || strings.Contains(route+"/", "/./") || strings.Contains(route+"/", "/../"):
		return "a path has no empty and no dot segments"
	}
	return ""
}

func (v validator) gateway(g Gateway) {
	if wrong := addressFault(g.Address); wrong != "" {
		v.fail("gateway.address", "%s", wrong)
	}
	if !isToken(g.ProfileHeader) {
		v.fail("gateway.profile_header", "want the name of an HTTP header, got %q", g.ProfileHeader)
	}
	v.positive("gateway.timeout", g.Timeout)
	v.count("gateway.max_idle_conns_per_host", g.MaxIdleConnsPerHost, 0, maxWorkers)
	v.positive("gateway.idle_conn_timeout", g.IdleConnTimeout)
	v.duration("gateway.stream_idle_timeout", g.StreamIdleTimeout)
	v.breaker("gateway.breaker", g.Breaker)
	v.retry("gateway.retry", g.Retry)
	v.positive("gateway.profiles.encode.timeout", g.TimeoutOf("encode"))
	v.positive("gateway.profiles.prefill.timeout", g.TimeoutOf("prefill"))
	v.positive("gateway.profiles.decode.timeout", g.TimeoutOf("decode"))
	for _, profile := range []string{"encode", "prefill", "decode", "render"} {
		v.breaker("gateway.profiles."+profile+".breaker", g.BreakerOf(profile))
		v.retry("gateway.profiles."+profile+".retry", g.RetryOf(profile))
	}
}

func (v validator) breaker(key string, b Breaker) {
	v.count(key+".consecutive_failures", b.ConsecutiveFailures, 1, maxCount)
	v.ratio(key+".failure_ratio", b.FailureRatio)
	v.count(key+".min_requests", b.MinRequests, 1, maxCount)
	v.positive(key+".interval", b.Interval)
	v.positive(key+".open_timeout", b.OpenTimeout)
	v.count(key+".half_open_requests", b.HalfOpenRequests, 1, maxCount)
}

func (v validator) actors(a Actors) {
	v.positive("actors.queue_timeout", a.QueueTimeout)
	v.count("actors.max_inflight_size", a.MaxInflightSize, 1, maxInflightSize)
	v.count("actors.max_inflight_requests", a.MaxInflightRequests, 0, maxInflight)
	v.count("actors.max_waiting_requests", a.MaxWaitingRequests, 1, maxInflight)
	v.pool("actors.pools.render", a.Pools.Render)
	v.pool("actors.pools.media", a.Pools.Media)
	v.pool("actors.pools.encode", a.Pools.Encode)
	v.pool("actors.pools.prefill", a.Pools.Prefill)
	v.pool("actors.pools.passthrough", a.Pools.Passthrough)
	v.pool("actors.pools.decode", a.Pools.Decode)
	v.pool("actors.pools.release", a.Pools.Release)
	v.pool("actors.pools.broker", a.Pools.Broker)
}

func (v validator) pool(key string, p Pool) {
	v.count(key+".size", p.Size, 1, maxWorkers)
	v.count(key+".queue", p.Queue, 0, maxWorkers)
}

func (v validator) fail(key, format string, args ...any) {
	if at, ok := v.origins[key]; ok {
		v.faults.add(at, key, format, args...)
	}
}

func (v validator) count(key string, n, low, high int) {
	if n < low || n > high {
		v.fail(key, "must be from %d to %d, got %d", low, high, n)
	}
}

func (v validator) ratio(key string, r float64) {
	// Written so that NaN, of which every comparison is false, is refused.
	if ok := r >= 0 && r <= 1; !ok {
		v.fail(key, "must be from 0 to 1, got %v", r)
	}
}

func (v validator) positive(key string, d time.Duration) {
	if d <= 0 {
		v.fail(key, "must be longer than 0s")
	}
	v.duration(key, d)
}

func (v validator) duration(key string, d time.Duration) {
	if d > maxTime {
		v.fail(key, "must be at most %s, got %s", maxTime, d)
	}
}

func (v validator) listenAddr(key, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil || !isPort(port) {
		v.fail(key, `want host:port or ":8080", got %q`, addr)
	}
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// addressFault returns what keeps a text from being the base address of an HTTP service, or nothing. It repeats
// the text only where that cannot hold a password.
func addressFault(text string) string {
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, "@"):
		return "must not have a user or password in it"
	case err != nil:
		return "want an address such as http://host:80, got something that is no URL"
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "want an address such as http://host:80, got " + strconv.Quote(text)
	case u.Port() != "" && (!isPort(u.Port()) || u.Port() == "0"):
		return "there is no port " + u.Port()
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return "must end after the host and port, got " + strconv.Quote(text)
	default:
		return ""
	}
}

// isToken tells whether s can be the name of an HTTP header (a token of RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		isDigit := '0' <= c && c <= '9'
		if !isLetter && !isDigit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
