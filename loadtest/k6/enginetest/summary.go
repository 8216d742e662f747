package enginetest

import (
	"encoding/json"
	"strconv"
	"time"
)

// summaryData is what k6 hands to handleSummary: metrics that have samples, and
// those that a threshold names.
func (e *Engine) summaryData(took time.Duration) jsonText {
	type metric struct {
		Type       kind               `json:"type"`
		Contains   string             `json:"contains"`
		Values     map[string]float64 `json:"values"`
		Thresholds map[string]result  `json:"thresholds,omitempty"`
	}
	all := map[string]metric{}
	put := func(name string) {
		base, _, _ := submetric(name) // validated
		values, _ := e.metrics.values(name, e.Options.SummaryTrendStats, took)
		m := metric{Type: e.metrics.kinds[base], Contains: "default", Values: values}
		if bounds := e.Options.Thresholds[name]; len(bounds) > 0 {
			m.Thresholds = map[string]result{}
			for _, t := range bounds {
				m.Thresholds[t.text] = result{e.meets(name, t, took)}
			}
		}
		all[name] = m
	}
	for name := range e.metrics.samples {
		put(name)
	}
	for name := range e.Options.Thresholds {
		base, _, _ := submetric(name)
		put(base)
		put(name)
	}
	text, err := json.Marshal(map[string]any{
		"metrics":    all,
		"root_group": map[string]any{"name": "", "path": "", "groups": []any{}, "checks": []any{}},
		"options":    map[string]any{"summaryTrendStats": e.Options.SummaryTrendStats},
		"state":      map[string]any{"isStdErrTTY": false, "isStdOutTTY": false, "testRunDurationMs": took.Seconds() * 1000},
	})
	if err != nil {
		panic(err) // numbers and strings only
	}
	return jsonText(text)
}

type result struct {
	OK bool `json:"ok"`
}

// meets evaluates a threshold that was validated.
func (e *Engine) meets(name string, t threshold, took time.Duration) bool {
	base, _, _ := submetric(name)
	stat, operator, text, _ := t.read(e.metrics.kinds[base])
	values, _ := e.metrics.values(name, []string{stat}, took)
	limit, _ := strconv.ParseFloat(text, 64)
	value := values[stat]
	switch operator {
	case "<":
		return value < limit
	case "<=":
		return value <= limit
	case ">":
		return value > limit
	case ">=":
		return value >= limit
	}
	return value == limit
}
