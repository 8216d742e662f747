package enginetest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// exports are the names that each stand-in has. A script that needs another one
// does not link.
var exports = map[string][]string{
	"k6":           {"check", "fail", "sleep"},
	"k6/data":      {"SharedArray"},
	"k6/encoding":  {"b64encode"},
	"k6/execution": {"scenario", "test", "vu"},
	"k6/http":      {"del", "expectedStatuses", "get", "post"},
	"k6/metrics":   {"Counter", "Gauge", "Rate", "Trend"},
}

// standInSource is a module that hands on what the runtime has.
func standInSource(name string) (string, error) {
	if exports[name] == nil {
		return "", fmt.Errorf("no such module: %s; there are %v", name, slices.Sorted(maps.Keys(exports)))
	}
	return fmt.Sprintf("const all = __standIns[%q];\nexport default all;\nexport const { %s } = all;\n",
		name, strings.Join(exports[name], ", ")), nil
}

func (v *vu) standIns() map[string]any {
	return map[string]any{
		"k6":           map[string]any{"check": v.check, "fail": v.fail, "sleep": v.sleep},
		"k6/data":      map[string]any{"SharedArray": v.sharedArray},
		"k6/encoding":  map[string]any{"b64encode": v.b64encode},
		"k6/execution": v.state.object,
		"k6/http":      v.http(),
		"k6/metrics":   v.metricTypes(),
	}
}

// refuse throws a TypeError.
func (v *vu) refuse(format string, args ...any) {
	panic(v.rt.NewTypeError(fmt.Sprintf(format, args...)))
}

func (v *vu) check(call sobek.FunctionCall) sobek.Value {
	v.tags(call.Argument(2))
	sets := call.Argument(1).ToObject(v.rt)
	all := true
	for _, name := range sets.Keys() {
		passed := true
		if f, ok := sobek.AssertFunction(sets.Get(name)); ok {
			result, err := f(sobek.Undefined(), call.Argument(0))
			if err != nil {
				panic(err)
			}
			passed = result.ToBoolean()
		} else {
			v.refuse("check %q is no function", name)
		}
		c := v.engine.Checks[name]
		if c == nil {
			c = &Check{}
			v.engine.Checks[name] = c
		}
		if passed {
			c.Passed++
		} else {
			c.Failed++
		}
		all = all && passed
		v.engine.metrics.add("checks", number(passed), nil)
	}
	return v.rt.ToValue(all)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (v *vu) fail(call sobek.FunctionCall) sobek.Value {
	panic(v.rt.NewGoError(fmt.Errorf("fail: %v", call.Argument(0))))
}

func (v *vu) sleep(call sobek.FunctionCall) sobek.Value {
	seconds := call.Argument(0).ToFloat()
	if !v.running || !(seconds >= 0 && seconds < 86400) {
		v.refuse("sleep(%v)", call.Argument(0))
	}
	if err := v.engine.sleep(v.engine.ctx, time.Duration(seconds*float64(time.Second))); err != nil {
		panic(v.rt.NewGoError(err))
	}
	return sobek.Undefined()
}

// sharedArray makes the elements once for all virtual users, and copies that do
// not change for each.
func (v *vu) sharedArray(call sobek.ConstructorCall) *sobek.Object {
	name := call.Argument(0).String()
	text, ok := v.engine.shared[name]
	if !ok {
		f, isFunction := sobek.AssertFunction(call.Argument(1))
		if v.running || name == "" || !isFunction {
			v.refuse("a SharedArray has a name and a function, and is made at initialisation")
		}
		made, err := f(sobek.Undefined())
		if err != nil {
			panic(err)
		}
		array, err := v.stringify(made)
		if err != nil || !strings.HasPrefix(string(array), "[") {
			v.refuse("the function of a SharedArray returns an array, not %v", made)
		}
		text = string(array)
		v.engine.shared[name] = text
	}
	array := v.parse(jsonText(text))
	freeze, _ := sobek.AssertFunction(v.rt.Get("Object").ToObject(v.rt).Get("freeze"))
	if _, err := freeze(sobek.Undefined(), array); err != nil {
		panic(err)
	}
	return array.ToObject(v.rt)
}

func (v *vu) b64encode(call sobek.FunctionCall) sobek.Value {
	switch in := call.Argument(0).Export().(type) {
	case string:
		return v.rt.ToValue(base64.StdEncoding.EncodeToString([]byte(in)))
	case sobek.ArrayBuffer:
		return v.rt.ToValue(base64.StdEncoding.EncodeToString(in.Bytes()))
	}
	v.refuse("b64encode takes a string or an ArrayBuffer, not %v", call.Argument(0))
	return nil
}

func (v *vu) console() map[string]any {
	return map[string]any{"error": func(call sobek.FunctionCall) sobek.Value {
		fmt.Fprintln(os.Stderr, "console.error:", call.Argument(0))
		return sobek.Undefined()
	}}
}

// execution is k6/execution: where a virtual user is.
type execution struct {
	object, scenario *sobek.Object
}

func newExecution(v *vu) *execution {
	x := &execution{object: v.rt.NewObject(), scenario: v.rt.NewObject()}
	test := map[string]any{"abort": func(call sobek.FunctionCall) sobek.Value {
		panic(v.rt.NewGoError(fmt.Errorf("aborted: %v", call.Argument(0))))
	}}
	for name, value := range map[string]any{"scenario": x.scenario, "test": test, "vu": map[string]any{}} {
		_ = x.object.Set(name, value) // a new object takes everything
	}
	return x
}

// enter says which iteration it is.
func (x *execution) enter(scenario string, began time.Time, iteration int) {
	for name, value := range map[string]any{"name": scenario, "startTime": began.UnixMilli(), "iterationInTest": iteration} {
		_ = x.scenario.Set(name, value)
	}
}

// jsonText is a value as JSON.
type jsonText string

func (v *vu) parse(text jsonText) sobek.Value {
	parse, _ := sobek.AssertFunction(v.rt.Get("JSON").ToObject(v.rt).Get("parse"))
	value, err := parse(sobek.Undefined(), v.rt.ToValue(string(text)))
	if err != nil {
		panic(err)
	}
	return value
}

// stringify makes JSON, null of what has none.
func (v *vu) stringify(value sobek.Value) (jsonText, error) {
	stringify, _ := sobek.AssertFunction(v.rt.Get("JSON").ToObject(v.rt).Get("stringify"))
	text, err := stringify(sobek.Undefined(), value)
	if err != nil {
		return "", err
	}
	if sobek.IsUndefined(text) {
		return "null", nil
	}
	return jsonText(text.String()), nil
}

func fromJSON(text jsonText, into any) error {
	return json.Unmarshal([]byte(text), into)
}
