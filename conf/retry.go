package conf

import "time"

// Retry is when a leg that failed is sent again.
type Retry struct {
	// MaxAttempts of one leg, the first among them; 1 means no retry, 10 is the most.
	MaxAttempts int `toml:"max_attempts"`
	// BaseDelay is the longest wait before the second attempt, and doubles for each further one; 0 means no wait.
	BaseDelay time.Duration `toml:"base_delay"`
	// MaxDelay is where it stops doubling; not shorter than BaseDelay.
	MaxDelay time.Duration `toml:"max_delay"`
	// BudgetRatio, 0 to 1, is how many retries there may be for each leg of late, in the whole process.
	BudgetRatio float64 `toml:"budget_ratio"`
	// MinRetries are allowed whatever the ratio; 0 leaves it to the ratio alone.
	MinRetries int `toml:"min_retries"`
}

// ProfileRetry is the part of a [Retry] that a profile may have to itself; nil takes the gateway's. The budget is one
// for all profiles: an outage of one must not double the load of the others' workers.
type ProfileRetry struct {
	MaxAttempts *int           `toml:"max_attempts"`
	BaseDelay   *time.Duration `toml:"base_delay"`
	MaxDelay    *time.Duration `toml:"max_delay"`
}

// RetryOf returns the retries of a profile: "encode", "prefill", "decode", "render"; of any other the gateway's.
func (g Gateway) RetryOf(profile string) Retry {
	own := map[string]ProfileRetry{
		"encode":  g.Profiles.Encode.Retry,
		"prefill": g.Profiles.Prefill.Retry,
		"decode":  g.Profiles.Decode.Retry,
		"render":  g.Profiles.Render.Retry,
	}[profile]
	r := g.Retry
	r.MaxAttempts = or(own.MaxAttempts, r.MaxAttempts)
	r.BaseDelay = or(own.BaseDelay, r.BaseDelay)
	r.MaxDelay = or(own.MaxDelay, r.MaxDelay)
	return r
}

// maxAttempts is where trying again has become hammering.
const maxAttempts = 10

func (v validator) retry(key string, r Retry) {
	v.count(key+".max_attempts", r.MaxAttempts, 1, maxAttempts)
	v.duration(key+".base_delay", r.BaseDelay)
	v.duration(key+".max_delay", r.MaxDelay)
	if r.MaxDelay < r.BaseDelay {
		// One of the two may be a default, or inherited: the other is at fault then.
		if _, set := v.origins[key+".max_delay"]; set {
			v.fail(key+".max_delay", "must be at least base_delay (%s), got %s", r.BaseDelay, r.MaxDelay)
		} else {
			v.fail(key+".base_delay", "must be at most max_delay (%s), got %s", r.MaxDelay, r.BaseDelay)
		}
	}
	v.ratio(key+".budget_ratio", r.BudgetRatio)
	v.count(key+".min_retries", r.MinRetries, 0, maxCount)
}
