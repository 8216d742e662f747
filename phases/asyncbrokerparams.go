package phases

import (
	"net/http"
	"slices"
	"time"

	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// AsyncBrokerParams are the parameters of an async-broker step. Their names are
// those of llm-d's step of that name.
type AsyncBrokerParams struct {
	// RedisURL of the broker's Redis; required. It may hold a password: it is
	// literal, env:NAME or file:PATH, and is shown to nobody.
	RedisURL string `toml:"redis_url,secret"`
	// ModeHeader, TenantHeader and TimeoutHeader are what clients say by.
	ModeHeader    string `toml:"mode_header"`
	TenantHeader  string `toml:"tenant_header"`
	TimeoutHeader string `toml:"timeout_header"`
	// Routes give queue and tier by model and tenant; the first that matches
	// counts, DefaultQueue and DefaultTier stand for what it leaves open.
	Routes       []AsyncRoute `toml:"routes"`
	DefaultQueue string       `toml:"default_queue"`
	DefaultTier  string       `toml:"default_tier"`
	// Objectives of tiers, and the headers that passthrough sets.
	Objectives      map[string]AsyncObjective `toml:"objectives"`
	ObjectiveHeader string                    `toml:"objective_header"`
	FairnessHeader  string                    `toml:"fairness_header"`
	Quota           AsyncQuota                `toml:"quota"`
	Timeouts        AsyncTimeouts             `toml:"timeouts"`
	// WaitCapSeconds is how long a client is kept waiting; 0 is until its time-out.
	WaitCapSeconds int64 `toml:"wait_cap_seconds"`
	// FetchGraceSeconds is how long a result is kept after it was fetched; 0 is not
	// at all.
	FetchGraceSeconds int64 `toml:"fetch_grace_seconds"`
	// WakeupMode is auto, notify or poll.
	WakeupMode string `toml:"wakeup_mode"`
	// ForwardHeaders of the client go into the queue with its request.
	ForwardHeaders []string `toml:"forward_headers"`
}

// AsyncRoute is where requests of a model and a tenant go; "" is any of them, and
// the default of what it does not say.
type AsyncRoute struct {
	Model  string `toml:"model"`
	Tenant string `toml:"tenant"`
	Queue  string `toml:"queue"`
	Tier   string `toml:"tier"`
}

// AsyncObjective names the objectives of a tier, within its tenant's quota and
// beyond.
type AsyncObjective struct {
	Reserved string `toml:"reserved"`
	Overflow string `toml:"overflow"`
}

// AsyncQuota is how many requests of a tenant may be at work, shared with the
// broker.
type AsyncQuota struct {
	Prefix        string           `toml:"prefix"`
	Attribute     string           `toml:"attribute"`
	Limits        map[string]int64 `toml:"limits"`
	WindowSeconds int64            `toml:"window_seconds"`
}

// AsyncTimeouts are those of the modes that have one.
type AsyncTimeouts struct {
	Enqueue AsyncTimeout `toml:"enqueue"`
	Wait    AsyncTimeout `toml:"wait"`
}

// AsyncTimeout is for how long a request is good; nil is the default.
type AsyncTimeout struct {
	// DefaultSeconds is for clients that say nothing, MaxSeconds the most that they
	// can ask for; 0 is no limit.
	DefaultSeconds *int64 `toml:"default_seconds"`
	MaxSeconds     *int64 `toml:"max_seconds"`
}

// mostSeconds is as good as for ever, and can be counted in nanoseconds.
const mostSeconds = 10 * 365 * 24 * 3600

// The most that a tenant's quota can be.
const mostQuota = 1 << 40

// DefaultAsyncBrokerParams are those of a step that says only where its Redis is.
func DefaultAsyncBrokerParams() AsyncBrokerParams {
	return AsyncBrokerParams{
		ModeHeader: "x-llm-d-async-mode", TenantHeader: "x-llm-d-tenant", TimeoutHeader: "x-llm-d-request-timeout-seconds",
		ObjectiveHeader: "x-llm-d-inference-objective", FairnessHeader: "x-llm-d-inference-fairness-id",
		DefaultQueue: "request-sortedset", Quota: AsyncQuota{Prefix: "quota:", Attribute: "userid", WindowSeconds: 300},
		FetchGraceSeconds: 60, WakeupMode: "auto", ForwardHeaders: []string{"x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms"},
	}
}

// timeout is a mode's, all of it known; most 0 is no limit.
type timeout struct{ usual, most int64 }

// of returns the time-out of a request that asks for so many seconds, 0 for none.
func (t timeout) of(asked int64) time.Duration {
	seconds := t.usual
	if asked > 0 {
		seconds = asked
	}
	if t.most > 0 {
		seconds = min(seconds, t.most)
	}
	return time.Duration(min(seconds, mostSeconds)) * time.Second
}

// read fills what is left open with defaults. A maximum that nobody has set
// follows a default that somebody has.
func (t AsyncTimeout) read(usual, most int64) timeout {
	made := timeout{usual, most}
	if t.DefaultSeconds != nil && *t.DefaultSeconds > 0 {
		made.usual = *t.DefaultSeconds
	}
	switch {
	case t.MaxSeconds != nil:
		made.most = *t.MaxSeconds
	case most > 0:
		made.most = max(most, made.usual)
	}
	return made
}

// timeouts of a request, of each mode that has one.
func (p *AsyncBrokerParams) timeouts() (enqueue, wait timeout) {
	return p.Timeouts.Enqueue.read(3600, 0), p.Timeouts.Wait.read(60, 3600)
}

// check refuses parameters that cannot be.
func (p *AsyncBrokerParams) check(params Params) error {
	if p.RedisURL == "" {
		return params.Errorf("redis_url", "required: the Redis of the broker, such as redis://host:6379/0; literal, env:NAME or file:PATH")
	}
	if p.DefaultQueue == "" {
		return params.Errorf("default_queue", "must not be empty")
	}
	if !slices.Contains([]string{"auto", "notify", "poll"}, p.WakeupMode) {
		return params.Errorf("wakeup_mode", `must be "auto", "notify" or "poll", got %q`, p.WakeupMode)
	}
	for _, check := range []func(Params) error{p.checkHeaders, p.checkSeconds, p.checkTimeouts, p.checkQuota} {
		if err := check(params); err != nil {
			return err
		}
	}
	return nil
}

func (p *AsyncBrokerParams) checkHeaders(params Params) error {
	for _, h := range []struct{ key, name string }{{"mode_header", p.ModeHeader}, {"tenant_header", p.TenantHeader},
		{"timeout_header", p.TimeoutHeader}, {"objective_header", p.ObjectiveHeader}, {"fairness_header", p.FairnessHeader}} {
		if !wire.IsToken(h.name) {
			return params.Errorf(h.key, "want the name of an HTTP header, got %q", h.name)
		}
		if wire.Reserved(http.CanonicalHeaderKey(h.name), "") {
			return params.Errorf(h.key, "%q is HTTP's own, or the coordinator's", h.name)
		}
	}
	own := []string{p.ModeHeader, p.ObjectiveHeader, p.FairnessHeader}
	for _, name := range p.ForwardHeaders {
		switch at := http.CanonicalHeaderKey(name); {
		case !wire.IsToken(name):
			return params.Errorf("forward_headers", "want names of HTTP headers, got %q", name)
		case slices.ContainsFunc(own, func(other string) bool { return http.CanonicalHeaderKey(other) == at }):
			return params.Errorf("forward_headers", "%q is the step's own: a broker that sent it back would say what only the step may", name)
		}
	}
	return nil
}

func (p *AsyncBrokerParams) checkSeconds(params Params) error {
	for _, s := range []struct {
		key   string
		value int64
	}{{"wait_cap_seconds", p.WaitCapSeconds}, {"fetch_grace_seconds", p.FetchGraceSeconds}, {"quota.window_seconds", p.Quota.WindowSeconds}} {
		if err := checkCount(params, s.key, s.value, mostSeconds); err != nil {
			return err
		}
	}
	if p.Quota.WindowSeconds == 0 {
		return params.Errorf("quota.window_seconds", "must be at least 1: with 0 every slot would be forgotten at once")
	}
	return nil
}

func checkCount(params Params, key string, n, most int64) error {
	switch {
	case n < 0:
		return params.Errorf(key, "must not be negative, got %d", n)
	case n > most:
		return params.Errorf(key, "must be at most %d, got %d", most, n)
	}
	return nil
}

func (p *AsyncBrokerParams) checkTimeouts(params Params) error {
	enqueue, wait := p.timeouts()
	for _, t := range []struct {
		mode string
		set  AsyncTimeout
		read timeout
	}{{modeEnqueue, p.Timeouts.Enqueue, enqueue}, {modeWait, p.Timeouts.Wait, wait}} {
		key := "timeouts." + t.mode
		for name, n := range map[string]*int64{".default_seconds": t.set.DefaultSeconds, ".max_seconds": t.set.MaxSeconds} {
			if n == nil {
				continue
			}
			if err := checkCount(params, key+name, *n, mostSeconds); err != nil {
				return err
			}
		}
		if t.read.most > 0 && t.read.usual > t.read.most {
			return params.Errorf(key+".default_seconds", "%d is more than max_seconds, %d", t.read.usual, t.read.most)
		}
	}
	return nil
}

func (p *AsyncBrokerParams) checkQuota(params Params) error {
	if p.Quota.Attribute == "" {
		return params.Errorf("quota.attribute", "must not be empty")
	}
	for tenant, limit := range p.Quota.Limits {
		if err := checkCount(params, "quota.limits."+tenant, limit, mostQuota); err != nil {
			return err
		}
	}
	return nil
}

// settings are those of the broker.
func (p *AsyncBrokerParams) settings() broker.Settings {
	return broker.Settings{URL: p.RedisURL, Wakeup: p.WakeupMode, FetchGrace: time.Duration(p.FetchGraceSeconds) * time.Second,
		QuotaPrefix: p.Quota.Prefix, QuotaAttribute: p.Quota.Attribute, QuotaLimits: p.Quota.Limits,
		QuotaWindow: time.Duration(p.Quota.WindowSeconds) * time.Second}
}
