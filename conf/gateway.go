package conf

import "time"

// Gateway is the way to the workers.
type Gateway struct {
	// Address is the gateway's base, http://host:port or https://host:port, with no path.
	Address string `toml:"address"`
	// ProfileHeader is the header that tells the gateway which profile is to schedule a leg.
	ProfileHeader string `toml:"profile_header"`
	// Timeout bounds a leg up to its headers; of a parsed answer to its end, of a stream to its first event. Longer
	// than 0. A profile may have its own: see TimeoutOf.
	Timeout time.Duration `toml:"timeout"`
	// MaxIdleConnsPerHost is how many idle connections to keep; 0 leaves it to [Config.GatewayIdleConns].
	MaxIdleConnsPerHost int `toml:"max_idle_conns_per_host"`
	// IdleConnTimeout is how long to keep one; longer than 0.
	IdleConnTimeout time.Duration `toml:"idle_conn_timeout"`
	// StreamIdleTimeout is the longest wait between two chunks of a stream, after the first; 0 means no limit.
	StreamIdleTimeout time.Duration `toml:"stream_idle_timeout"`
	// H2C speaks HTTP/2 to an http address; an https address gets it anyway, if it can.
	H2C bool `toml:"h2c"`
	// Headers are added to every leg to the gateway and to nothing else, by name. A value is literal, "env:NAME" or
	// "file:PATH". They are not resolved here.
	Headers map[string]string `toml:"headers"`
	// TLS is for an https address.
	TLS ClientTLS `toml:"tls"`
	// Breaker is that of every profile; a profile may set parts of its own: see BreakerOf.
	Breaker Breaker `toml:"breaker"`
	// Retry is that of every profile; a profile may set parts of its own: see RetryOf.
	Retry Retry `toml:"retry"`
	// Profiles are what legs of one kind have to themselves.
	Profiles Profiles `toml:"profiles"`
}

// Breaker is when to stop sending to a profile that fails, and when to try again.
type Breaker struct {
	// Enabled false lets everything through and counts nothing.
	Enabled bool `toml:"enabled"`
	// ConsecutiveFailures in a row open the breaker; at least 1.
	ConsecutiveFailures int `toml:"consecutive_failures"`
	// FailureRatio, 0 to 1, of the results in Interval opens it too; 0 means this rule is off.
	FailureRatio float64 `toml:"failure_ratio"`
	// MinRequests is how many results FailureRatio needs to judge by; at least 1.
	MinRequests int `toml:"min_requests"`
	// Interval is how far back FailureRatio looks; longer than 0.
	Interval time.Duration `toml:"interval"`
	// OpenTimeout is how long an open breaker refuses before it tries again; longer than 0.
	OpenTimeout time.Duration `toml:"open_timeout"`
	// HalfOpenRequests may be tried at once then, and as many must succeed in a row to close it; at least 1.
	HalfOpenRequests int `toml:"half_open_requests"`
}

// Profiles are the gateway's scheduling profiles.
type Profiles struct {
	Encode  Profile       `toml:"encode"`
	Prefill Profile       `toml:"prefill"`
	Decode  Profile       `toml:"decode"`
	Render  RenderProfile `toml:"render"`
}

// Profile is what legs of one profile have to themselves. Nil takes the gateway's.
type Profile struct {
	Timeout *time.Duration `toml:"timeout"`
	Breaker ProfileBreaker `toml:"breaker"`
	Retry   ProfileRetry   `toml:"retry"`
}

// RenderProfile is the profile of calls to the render service. It has no timeout: its step has one.
type RenderProfile struct {
	Breaker ProfileBreaker `toml:"breaker"`
	Retry   ProfileRetry   `toml:"retry"`
}

// ProfileBreaker is a [Breaker] of which each part may be left to the gateway's, by nil.
type ProfileBreaker struct {
	Enabled             *bool          `toml:"enabled"`
	ConsecutiveFailures *int           `toml:"consecutive_failures"`
	FailureRatio        *float64       `toml:"failure_ratio"`
	MinRequests         *int           `toml:"min_requests"`
	Interval            *time.Duration `toml:"interval"`
	OpenTimeout         *time.Duration `toml:"open_timeout"`
	HalfOpenRequests    *int           `toml:"half_open_requests"`
}

// BreakerOf returns the breaker of a profile: "encode", "prefill", "decode", "render"; of any other the gateway's.
func (g Gateway) BreakerOf(profile string) Breaker {
	own := map[string]ProfileBreaker{
		"encode":  g.Profiles.Encode.Breaker,
		"prefill": g.Profiles.Prefill.Breaker,
		"decode":  g.Profiles.Decode.Breaker,
		"render":  g.Profiles.Render.Breaker,
	}[profile]
	return Breaker{
		Enabled:             or(own.Enabled, g.Breaker.Enabled),
		ConsecutiveFailures: or(own.ConsecutiveFailures, g.Breaker.ConsecutiveFailures),
		FailureRatio:        or(own.FailureRatio, g.Breaker.FailureRatio),
		MinRequests:         or(own.MinRequests, g.Breaker.MinRequests),
		Interval:            or(own.Interval, g.Breaker.Interval),
		OpenTimeout:         or(own.OpenTimeout, g.Breaker.OpenTimeout),
		HalfOpenRequests:    or(own.HalfOpenRequests, g.Breaker.HalfOpenRequests),
	}
}

// TimeoutOf returns the timeout of a profile: "encode", "prefill", "decode"; of any other the gateway's. Legs to the render
// service are bounded by their step's timeout instead.
func (g Gateway) TimeoutOf(profile string) time.Duration {
	switch profile {
	case "encode":
		return or(g.Profiles.Encode.Timeout, g.Timeout)
	case "prefill":
		return or(g.Profiles.Prefill.Timeout, g.Timeout)
	case "decode":
		return or(g.Profiles.Decode.Timeout, g.Timeout)
	default:
		return g.Timeout
	}
}

func or[T any](own *T, inherited T) T {
	if own != nil {
		return *own
	}
	return inherited
}

// GatewayIdleConns returns [Gateway.MaxIdleConnsPerHost] or, if that is 0, as many as the pools that call the
// gateway can use at a time: with fewer, a full house would open connections only to close them again.
func (c *Config) GatewayIdleConns() int {
	if c.Gateway.MaxIdleConnsPerHost > 0 {
		return c.Gateway.MaxIdleConnsPerHost
	}
	pools := c.Actors.Pools
	return pools.Encode.Size + pools.Prefill.Size + pools.Decode.Size + pools.Passthrough.Size + pools.Release.Size
}
