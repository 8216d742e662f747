package check

import (
	"testing"

	promv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// TestAlertsAreASpec: the alerts can be the spec of a PrometheusRule, as their README
// says. That the metrics in them exist is tested in cmd/assembly.
func TestAlertsAreASpec(t *testing.T) {
	raw, err := yaml.YAMLToJSONStrict([]byte(readFile(t, "deploy/observability/alerts.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var spec promv1.PrometheusRuleSpec
	if err := decodeStrict(raw, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Groups) == 0 || len(spec.Groups[0].Rules) == 0 {
		t.Error("no alerts")
	}
}
