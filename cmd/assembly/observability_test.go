package assembly_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/llm-coordinator/coordinator/actors"
	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/broker"
	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// TestDashboardAndAlerts use only metrics and labels that there are.
func TestDashboardAndAlerts(t *testing.T) {
	known := metricLabels(t)
	for where, expr := range expressions(t) {
		checkExpression(t, where, expr, known)
	}
}

const metricPrefix = "llm_d_coordinator_"

// expressions are those of the dashboard and of the alerts, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	var dashboard struct {
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, LegendFormat, RefID string }
		}
	}
	read(t, "grafana-dashboard.json", json.Unmarshal, &dashboard)
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the id of another", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			// A legend's labels are checked as if they were summed by.
			legend := regexp.MustCompile(`\{\{(\w+)\}\}`).ReplaceAllString(target.LegendFormat, "by ($1)")
			all["panel "+p.Title+" "+target.RefID] = target.Expr + " " + legend
		}
	}
	for _, v := range dashboard.Templating.List {
		if query, ok := v.Query.(map[string]any); ok {
			all["variable "+v.Name], _ = query["query"].(string)
		} else if v.Type != "datasource" {
			t.Errorf("variable %s has no query", v.Name)
		}
	}
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	read(t, "alerts.yaml", yaml.Unmarshal, &alerts)
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("a rule has no name or says nothing: %+v", r)
			}
			labels := regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1)
			for _, l := range labels {
				r.Expr += " by (" + l[1] + ")"
			}
			all["alert "+r.Alert] = r.Expr
		}
	}
	if len(dashboard.Panels) < 20 || len(all) < 50 {
		t.Errorf("only %d panels and %d expressions", len(dashboard.Panels), len(all))
	}
	return all
}

func read(t *testing.T, name string, unmarshal func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/observability/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

var (
	metricInExpr = regexp.MustCompile(`\b` + metricPrefix + `(\w+)(?:\{([^}]*)\})?`)
	labelMatcher = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	groupedBy    = regexp.MustCompile(`\b(?:by|without|on|ignoring) \(([^)]*)\)`)
	labelValues  = regexp.MustCompile(`^label_values\(.*, (\w+)\)$`)
)

// targets are labels that Prometheus adds, and that of buckets.
var targets = []string{"job", "instance", "le"}

// checkExpression looks at the names in an expression; that it is well-formed it
// does not check.
func checkExpression(t *testing.T, where, expr string, known map[string][]string) {
	t.Helper()
	labels := slices.Clone(targets)
	found := metricInExpr.FindAllStringSubmatch(expr, -1)
	for _, m := range found {
		own, ok := lookUpMetric(m[1], known)
		if !ok {
			t.Errorf("%s: there is no metric %s", where, m[1])
			return
		}
		labels = append(labels, own...)
		for _, l := range labelMatcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(own, l[1]) && !slices.Contains(targets, l[1]) {
				t.Errorf("%s: %s has no label %s, only %v", where, m[1], l[1], own)
			}
		}
	}
	if len(found) == 0 && !strings.Contains(expr, "process_") && !strings.Contains(expr, "go_") {
		t.Errorf("%s: none of our metrics in %q", where, expr)
	}
	used := groupedBy.FindAllStringSubmatch(expr, -1)
	used = append(used, labelValues.FindAllStringSubmatch(expr, -1)...)
	for _, group := range used {
		for name := range strings.SplitSeq(group[1], ",") {
			if name = strings.TrimSpace(name); !slices.Contains(labels, name) {
				t.Errorf("%s: none of its metrics has a label %s", where, name)
			}
		}
	}
}

// lookUpMetric returns the labels of a metric, or of the histogram that it is a
// series of.
func lookUpMetric(name string, known map[string][]string) (labels []string, ok bool) {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		if base, is := strings.CutSuffix(name, suffix); is {
			if labels, ok = known[base]; ok {
				return labels, true
			}
		}
	}
	return nil, false
}

// metricLabels are the labels of all metrics, by name without the prefix. A vector
// without values is not gathered, so those of the parts are asked for by the
// descriptions that they register; the assembly's own are gathered.
func metricLabels(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	parts := descriptions{}
	actors.NewMetrics(&parts)
	phases.NewMetrics(&parts)
	server.NewMetrics(&parts)
	gateway.NewMetrics(&parts)
	broker.NewMetrics(&parts, nil)
	for _, desc := range parts {
		m := regexp.MustCompile(`fqName: "` + metricPrefix + `(\w+)".* variableLabels: \{([^}]*)\}`).FindStringSubmatch(desc.String())
		if m == nil {
			t.Fatalf("what is %s?", desc)
		}
		known[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
	}
	families, err := newRig(t, setup{}).Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), metricPrefix)
		if _, there := known[name]; !ours || there {
			continue
		}
		known[name] = nil
		for _, l := range family.GetMetric()[0].GetLabel() {
			known[name] = append(known[name], l.GetName())
		}
	}
	return known
}

// descriptions registers nothing: it keeps what is described.
type descriptions []*prometheus.Desc

// Register implements prometheus.Registerer.
func (d *descriptions) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() { defer close(ch); c.Describe(ch) }()
	for desc := range ch {
		*d = append(*d, desc)
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (d *descriptions) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c) // it never fails
	}
}

// Unregister implements prometheus.Registerer.
func (d *descriptions) Unregister(prometheus.Collector) bool { return false }
