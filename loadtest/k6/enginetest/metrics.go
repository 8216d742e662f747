package enginetest

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// kind is the type of a metric, as k6 names it in summaries.
type kind string

const (
	counter kind = "counter"
	gauge   kind = "gauge"
	rate    kind = "rate"
	trend   kind = "trend"
)

// builtIn are the metrics of k6 that a threshold may name.
var builtIn = map[string]kind{
	"checks": rate, "data_received": counter, "data_sent": counter, "dropped_iterations": counter,
	"http_req_blocked": trend, "http_req_connecting": trend, "http_req_duration": trend, "http_req_failed": rate,
	"http_req_receiving": trend, "http_req_sending": trend, "http_req_tls_handshaking": trend, "http_req_waiting": trend,
	"http_reqs": counter, "iteration_duration": trend, "iterations": counter, "vus": gauge, "vus_max": gauge,
}

type sample struct {
	value float64
	tags  map[string]string
}

// metrics are all that is measured.
type metrics struct {
	kinds   map[string]kind
	samples map[string][]sample
}

func newMetrics() metrics {
	return metrics{maps.Clone(builtIn), map[string][]sample{}}
}

func (m metrics) add(name string, value float64, tags map[string]string) {
	m.samples[name] = append(m.samples[name], sample{value, tags})
}

func (m metrics) addRequest(p params, status int, waited, took time.Duration) {
	m.add("http_reqs", 1, p.tags)
	m.add("http_req_failed", number(!p.expected.has(status)), p.tags)
	m.add("http_req_waiting", waited.Seconds()*1000, p.tags)
	m.add("http_req_duration", took.Seconds()*1000, p.tags)
}

// metricName is what k6 takes.
var metricName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{1,127}$`)

// metricTypes are the constructors of k6/metrics.
func (v *vu) metricTypes() map[string]any {
	types := map[string]any{}
	for name, k := range map[string]kind{"Counter": counter, "Gauge": gauge, "Rate": rate, "Trend": trend} {
		types[name] = func(call sobek.ConstructorCall) *sobek.Object { return v.newMetric(call, k) }
	}
	return types
}

func (v *vu) newMetric(call sobek.ConstructorCall, k kind) *sobek.Object {
	name := call.Argument(0).String()
	m := v.engine.metrics
	if known, ok := m.kinds[name]; v.running || !metricName.MatchString(name) || ok && known != k {
		v.refuse("metric %q cannot be made (any more), or is another one already", name)
	}
	m.kinds[name] = k
	_ = call.This.Set("name", name)
	_ = call.This.Set("add", func(c sobek.FunctionCall) sobek.Value {
		value, ok := asFloat(c.Argument(0))
		if b, isBool := c.Argument(0).Export().(bool); isBool {
			value, ok = number(b), k == rate
		}
		if !v.running || !ok || math.IsNaN(value) || k == counter && value < 0 {
			v.refuse("%s.add(%v)", name, c.Argument(0))
		}
		m.add(name, value, v.tags(c.Argument(1)))
		return sobek.Undefined()
	})
	return nil // This
}

// submetric splits "metric{key:value,key:value}".
func submetric(name string) (metric string, tags map[string]string, err error) {
	metric, rest, tagged := strings.Cut(name, "{")
	if !tagged {
		return metric, nil, nil
	}
	tags = map[string]string{}
	inner, ok := strings.CutSuffix(rest, "}")
	for pair := range strings.SplitSeq(inner, ",") {
		key, value, found := strings.Cut(pair, ":")
		if !ok || !found || key == "" || value == "" {
			return "", nil, fmt.Errorf("submetric %q", name)
		}
		tags[key] = value
	}
	return metric, tags, nil
}

// Values are what a summary says of a metric or submetric.
func (m metrics) values(name string, stats []string, took time.Duration) (map[string]float64, error) {
	metric, tags, err := submetric(name)
	if err != nil {
		return nil, err
	}
	var values []float64
	for _, s := range m.samples[metric] {
		if hasAll(s.tags, tags) {
			values = append(values, s.value)
		}
	}
	sum := 0.0
	for _, x := range values {
		sum += x
	}
	count := float64(len(values))
	switch m.kinds[metric] {
	case counter:
		return map[string]float64{"count": sum, "rate": sum / took.Seconds()}, nil
	case rate:
		return map[string]float64{"rate": sum / max(count, 1), "passes": sum, "fails": count - sum}, nil
	case gauge:
		if len(values) == 0 {
			values = []float64{0}
		}
		return map[string]float64{"value": values[len(values)-1], "min": slices.Min(values), "max": slices.Max(values)}, nil
	}
	slices.Sort(values)
	out := map[string]float64{}
	for _, stat := range stats {
		out[stat] = trendStat(values, stat)
	}
	return out, nil
}

func hasAll(tags, wanted map[string]string) bool {
	for key, value := range wanted {
		if tags[key] != value {
			return false
		}
	}
	return true
}

// trendStat is a statistic of sorted values: NaN for one that k6 does not know.
func trendStat(values []float64, stat string) float64 {
	count := float64(len(values))
	switch {
	case stat == "count":
		return count
	case stat == "avg" && count > 0:
		sum := 0.0
		for _, x := range values {
			sum += x
		}
		return sum / count
	}
	percent := map[string]float64{"min": 0, "med": 50, "max": 100, "avg": 0}
	p, known := percent[stat]
	if !known {
		if _, err := fmt.Sscanf(stat, "p(%g)", &p); err != nil {
			return math.NaN()
		}
	}
	if count == 0 {
		return 0
	}
	at := p / 100 * (count - 1)
	low := math.Floor(at)
	high := min(low+1, count-1)
	return values[int(low)] + (at-low)*(values[int(high)]-values[int(low)])
}
