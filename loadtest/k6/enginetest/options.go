package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Options are those of a script. Other members are refused.
type Options struct {
	Scenarios         map[string]Scenario    `json:"scenarios"`
	Thresholds        map[string][]threshold `json:"thresholds"`
	SummaryTrendStats []string               `json:"summaryTrendStats"`
	SetupTimeout      string                 `json:"setupTimeout"`
	TeardownTimeout   string                 `json:"teardownTimeout"`
	UserAgent         string                 `json:"userAgent"`
}

// Scenario is one of a script. Which members it has depends on its executor.
type Scenario struct {
	Executor        string  `json:"executor"`
	Exec            string  `json:"exec"`
	GracefulStop    string  `json:"gracefulStop"`
	Duration        string  `json:"duration"`
	MaxDuration     string  `json:"maxDuration"`
	Rate            int     `json:"rate"`
	StartRate       int     `json:"startRate"`
	TimeUnit        string  `json:"timeUnit"`
	PreAllocatedVUs int     `json:"preAllocatedVUs"`
	MaxVUs          int     `json:"maxVUs"`
	VUs             int     `json:"vus"`
	Iterations      int     `json:"iterations"`
	Stages          []stage `json:"stages"`
}

type stage struct {
	Target   int    `json:"target"`
	Duration string `json:"duration"`
}

// executors say which members each of them needs, each a bound in time and one
// in requests or virtual users. Those of k6 that are not here are not bounded so,
// or not used.
var executors = map[string][]string{
	"constant-arrival-rate": {"rate", "timeUnit", "duration", "preAllocatedVUs", "maxVUs"},
	"ramping-arrival-rate":  {"startRate", "timeUnit", "stages", "preAllocatedVUs", "maxVUs"},
	"per-vu-iterations":     {"vus", "iterations", "maxDuration"},
	"shared-iterations":     {"vus", "iterations", "maxDuration"},
}

// threshold is a text, or an object with more about it.
type threshold struct {
	text       string
	Threshold  string `json:"threshold"`
	Abort      bool   `json:"abortOnFail"`
	DelayAbort string `json:"delayAbortEval"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *threshold) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &t.text)
	}
	type plain threshold
	if err := strictly(data, (*plain)(t)); err != nil {
		return err
	}
	t.text = t.Threshold
	return nil
}

func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func readOptions(v *vu) (o Options, err error) {
	text, err := v.stringify(v.exports.Get("options"))
	if err != nil {
		return o, err
	}
	if err := strictly([]byte(text), &o); err != nil {
		return o, err
	}
	// Each scenario has what its executor needs, and no more than all may have.
	var raw struct {
		Scenarios map[string]map[string]json.RawMessage `json:"scenarios"`
	}
	if err := fromJSON(text, &raw); err != nil {
		return o, err
	}
	for name, s := range raw.Scenarios {
		needs := executors[o.Scenarios[name].Executor]
		if needs == nil {
			return o, fmt.Errorf("scenario %s: executor %q", name, o.Scenarios[name].Executor)
		}
		for _, key := range needs {
			if s[key] == nil {
				return o, fmt.Errorf("scenario %s: no %s", name, key)
			}
			delete(s, key)
		}
		for key := range s {
			if !slices.Contains([]string{"executor", "exec", "gracefulStop"}, key) {
				return o, fmt.Errorf("scenario %s: %s is not for %s", name, key, o.Scenarios[name].Executor)
			}
		}
	}
	return o, nil
}

func (o Options) validate(m metrics) error {
	if len(o.Scenarios) == 0 {
		return fmt.Errorf("no scenarios")
	}
	for name, s := range o.Scenarios {
		if err := s.validate(); err != nil {
			return fmt.Errorf("scenario %s: %w", name, err)
		}
	}
	for _, stat := range o.SummaryTrendStats {
		if x := trendStat(nil, stat); x != x {
			return fmt.Errorf("summaryTrendStats: %q", stat)
		}
	}
	for name, bounds := range o.Thresholds {
		metric, _, err := submetric(name)
		if err != nil {
			return err
		}
		k, ok := m.kinds[metric]
		if !ok {
			return fmt.Errorf("threshold of %s: there is no such metric", name)
		}
		for _, t := range bounds {
			if _, _, _, err := t.read(k); err != nil {
				return fmt.Errorf("threshold of %s: %w", name, err)
			}
		}
	}
	return nil
}

// validate checks that the scenario ends.
func (s Scenario) validate() error {
	durations := []string{s.TimeUnit, s.Duration, s.MaxDuration, s.GracefulStop}
	for _, st := range s.Stages {
		durations = append(durations, st.Duration)
	}
	for _, text := range durations {
		if d, err := time.ParseDuration(text); text != "" && (err != nil || d < 0 || d > 25*time.Hour) {
			return fmt.Errorf("duration %q", text)
		}
	}
	if s.Executor == "constant-arrival-rate" && s.Rate < 1 || s.MaxVUs < s.PreAllocatedVUs || s.MaxVUs+s.VUs < 1 {
		return fmt.Errorf("a rate or a number of virtual users makes no sense: %+v", s)
	}
	if s.length() <= 0 {
		return fmt.Errorf("it takes no time, or has no end")
	}
	return nil
}

// length is how long it takes at most.
func (s Scenario) length() time.Duration {
	sum := duration(s.Duration) + duration(s.MaxDuration)
	for _, st := range s.Stages {
		sum += duration(st.Duration)
	}
	return sum
}

// duration reads what was validated.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

var (
	bound        = regexp.MustCompile(`^([a-z]+(?:\(\d+(?:\.\d+)?\))?)\s*(<=|>=|==|<|>)\s*(\d+(?:\.\d+)?)$`)
	statsOfKinds = map[kind]*regexp.Regexp{
		counter: regexp.MustCompile(`^(count|rate)$`),
		gauge:   regexp.MustCompile(`^value$`),
		rate:    regexp.MustCompile(`^rate$`),
		trend:   regexp.MustCompile(`^(avg|min|max|med|p\(\d+(\.\d+)?\))$`),
	}
)

// read takes a threshold apart.
func (t threshold) read(k kind) (stat, operator, limit string, err error) {
	parts := bound.FindStringSubmatch(t.text)
	if parts == nil || !statsOfKinds[k].MatchString(parts[1]) {
		return "", "", "", fmt.Errorf("%q is none for a %s", t.text, k)
	}
	return parts[1], parts[2], parts[3], nil
}
