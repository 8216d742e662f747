package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// step is what was measured of a step of the ramp.
type step struct {
	begun int
	notOK float64
	p99   float64
}

// rampSummary is what ramp.js says of steps of 10 s at 10/s, 20/s and so on.
func rampSummary(t *testing.T, steps []step, seconds int) (text string, knee any) {
	t.Helper()
	e := newEngine(t.Context(), scriptsDir, map[string]string{
		"LOAD_STEPS": "4", "LOAD_STEP_DURATION": "10s", "LOAD_START_RATE": "10", "LOAD_STEP_RATE": "10",
	})
	v, err := e.newVU("./ramp.js")
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]any{}
	for i, s := range steps {
		put := func(name string, values map[string]float64) {
			metrics[fmt.Sprintf("%s{step:%02d}", name, i+1)] = map[string]any{"values": values}
		}
		put("coordinator_answers", map[string]float64{"count": float64(s.begun)})
		put("coordinator_not_ok", map[string]float64{"rate": s.notOK})
		put("coordinator_first_byte", map[string]float64{"count": float64(s.begun) * (1 - s.notOK), "med": s.p99 / 2, "p(99)": s.p99})
	}
	data, err := json.Marshal(map[string]any{"metrics": metrics, "state": map[string]any{"testRunDurationMs": seconds * 1000}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := v.call("handleSummary", jsonText(data))
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]string
	if err := fromJSON(result, &files); err != nil {
		t.Fatal(err)
	}
	var report struct{ Knee any }
	if err := json.Unmarshal([]byte(files["summary.json"]), &report); err != nil {
		t.Fatal(err)
	}
	return files["stdout"], report.Knee
}

func TestRampFindsTheKnee(t *testing.T) {
	for _, test := range []struct {
		name    string
		steps   []step
		seconds int
		want    string
		knee    bool
	}{
		{"slower", []step{{100, 0, 50}, {200, 0, 60}, {300, 0, 151}, {400, 0, 900}}, 42, "knee: 20/s, p99 60.0 ms; at 30/s p99 is 3.0 times", true},
		{"failing", []step{{100, 0, 50}, {200, 0, 60}, {300, 0.01, 70}, {400, 0.2, 70}}, 42, "knee: 30/s, p99 70.0 ms; at 40/s 20.0 % not ok", true},
		{"not begun", []step{{100, 0, 50}, {179, 0, 60}, {180, 0, 60}, {180, 0, 60}}, 42, "knee: 10/s, p99 50.0 ms; at 20/s only 17.9/s could be begun", true},
		{"one step had bad luck", []step{{100, 0, 50}, {200, 0, 400}, {300, 0, 60}, {400, 0.3, 70}}, 42, "knee: 30/s", true},
		{"none", []step{{100, 0, 50}, {200, 0, 60}, {300, 0, 70}, {400, 0, 80}}, 42, "no knee up to 40/s", false},
		{"too much at once", []step{{100, 0.5, 50}, {200, 0.6, 60}, {300, 0.7, 70}, {400, 0.8, 80}}, 42, "already 10/s is too much: 50.0 % not ok", false},
		{"ended early, in a step", []step{{100, 0, 50}, {200, 0, 60}, {50, 0, 60}, {}}, 25, "no knee up to 20/s", false},
		{"ended at once", []step{{}, {}, {}, {}}, 2, "no step was run to its end", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, knee := rampSummary(t, test.steps, test.seconds)
			if !strings.Contains(text, test.want) || (knee != nil) != test.knee {
				t.Errorf("want %q, in the file: %v\n%s", test.want, knee, text)
			}
		})
	}
}
