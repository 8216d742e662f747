// Package enginetest runs the k6 scripts in sobek, the JavaScript engine that k6
// embeds, without k6: its modules are stand-ins that are thin, and stricter than
// k6 is, so that a name it would overlook is found. Requests are real ones. Time
// is not: what an iteration sleeps, and what lies between two of them, takes none.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// Engine runs one script once.
type Engine struct {
	// Requests are those that were made, in order.
	Requests []Request
	// Checks are counted by name.
	Checks map[string]*Check
	// Options are the script's.
	Options Options
	// Summary is what its handleSummary returned.
	Summary map[string]string

	ctx     context.Context
	dir     string
	env     map[string]string
	modules map[string]sobek.ModuleRecord
	shared  map[string]string // JSON of SharedArrays
	metrics metrics
	client  client
	schedule
}

// Check is how often a check passed and failed.
type Check struct{ Passed, Failed int }

// Run runs the script of that name, and what it imports, from a directory.
func Run(ctx context.Context, dir, name string, env map[string]string) (*Engine, error) {
	e := newEngine(ctx, dir, env)
	defer e.client.close()
	return e, e.run("./" + name)
}

func newEngine(ctx context.Context, dir string, env map[string]string) *Engine {
	return &Engine{
		ctx: ctx, dir: dir, env: env, Checks: map[string]*Check{},
		modules: map[string]sobek.ModuleRecord{}, shared: map[string]string{}, metrics: newMetrics(), client: newClient(),
	}
}

func (e *Engine) run(script string) error {
	main, err := e.newVU(script)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if e.Options, err = readOptions(main); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if err := e.Options.validate(e.metrics); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	data, err := main.call("setup")
	if err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	began := e.now()
	if err := e.plan(script, data); err != nil {
		return err
	}
	if err := e.runAll(); err != nil {
		return err
	}
	if _, err := main.call("teardown", data); err != nil {
		return fmt.Errorf("teardown: %w", err)
	}
	return e.summarize(main, e.now().Sub(began))
}

// summarize calls handleSummary with what was measured.
func (e *Engine) summarize(main *vu, took time.Duration) error {
	text, err := main.call("handleSummary", jsonText(e.summaryData(took)))
	if err != nil {
		return fmt.Errorf("handleSummary: %w", err)
	}
	return fromJSON(text, &e.Summary)
}

// vu is a virtual user: a script in a runtime of its own.
type vu struct {
	engine  *Engine
	rt      *sobek.Runtime
	exports *sobek.Object
	running bool // the script is initialised
	state   *execution
}

// newVU loads the script.
func (e *Engine) newVU(script string) (*vu, error) {
	v := &vu{engine: e, rt: sobek.New()}
	v.rt.SetFieldNameMapper(sobek.TagFieldNameMapper("json", true))
	v.rt.SetTimeSource(e.now)
	v.state = newExecution(v)
	standIns := v.rt.NewObject()
	for name, m := range v.standIns() {
		if err := standIns.Set(name, m); err != nil {
			return nil, err
		}
	}
	for name, value := range map[string]any{"__ENV": e.env, "__standIns": standIns, "console": v.console()} {
		if err := v.rt.Set(name, value); err != nil {
			return nil, err
		}
	}
	record, err := e.resolve(nil, script)
	if err != nil {
		return nil, err
	}
	if err := record.Link(); err != nil {
		return nil, err
	}
	promise := v.rt.CyclicModuleRecordEvaluate(record.(sobek.CyclicModuleRecord), e.resolve)
	if promise.State() != sobek.PromiseStateFulfilled {
		return nil, fmt.Errorf("%v", promise.Result())
	}
	v.exports = v.rt.NamespaceObjectFor(record)
	v.running = true
	return v, nil
}

// resolve finds the module of an import: one of k6, or a file below the script's
// directory.
func (e *Engine) resolve(_ any, specifier string) (sobek.ModuleRecord, error) {
	key := specifier
	if strings.HasPrefix(specifier, ".") {
		key = filepath.Base(specifier) // names of files are unique; a test sees to it
	}
	if m := e.modules[key]; m != nil {
		return m, nil
	}
	source, err := e.source(key, specifier)
	if err != nil {
		return nil, err
	}
	m, err := sobek.ParseModule(key, source, e.resolve)
	if err != nil {
		return nil, err
	}
	e.modules[key] = m
	return m, nil
}

func (e *Engine) source(key, specifier string) (string, error) {
	if !strings.HasPrefix(specifier, ".") {
		return standInSource(specifier)
	}
	for _, place := range []string{key, filepath.Join("lib", key)} {
		text, err := os.ReadFile(filepath.Join(e.dir, place))
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return string(text), err
		}
	}
	return "", fmt.Errorf("no such module: %s", specifier)
}

// call calls an exported function with JSON values and returns its result as
// JSON, as k6 hands data from setup to the virtual users. Setup and teardown may be
// missing.
func (v *vu) call(name string, args ...jsonText) (jsonText, error) {
	f, ok := sobek.AssertFunction(v.exports.Get(name))
	if !ok && (name == "setup" || name == "teardown") {
		return "null", nil
	}
	if !ok {
		return "", fmt.Errorf("it exports no %s", name)
	}
	values := make([]sobek.Value, len(args))
	for i, arg := range args {
		values[i] = v.parse(arg)
	}
	result, err := f(sobek.Undefined(), values...)
	if err != nil {
		return "", err
	}
	return v.stringify(result)
}
