package conf

import (
	"reflect"
	"strconv"
	"strings"
)

const (
	keyPrefix  = "COORDINATOR_"
	stepPrefix = keyPrefix + "STEPS_"
)

// An environment holds the variables that could be meant for us. Most with our prefix may not be: Kubernetes sets
// COORDINATOR_PORT and its like for every Service named "coordinator". So it is asked for names, never gone through.
type environment map[string]string

// newEnvironment picks the variables from a list like [os.Environ]'s.
func newEnvironment(environ []string) environment {
	env := environment{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, keyPrefix) {
			env[name] = value
		}
	}
	return env
}

// variable returns the name of the variable that overrides a key.
func variable(prefix, key string) string {
	return prefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// environment assigns what the environment has for any key of a struct, whether or not the file had the key.
func (a *assigner) environment(into reflect.Value) {
	for _, l := range leavesOf(into, "") {
		name := variable(a.envPrefix, l.key)
		text, ok := a.env[name]
		if !ok {
			continue
		}
		if err := setText(l.value, text); err != nil {
			a.fault(envPlace(name), l.key, "%v", err)
			continue
		}
		a.origins[l.key] = envPlace(name)
	}
}

// setText assigns a value written outside TOML: a string needs no quotes, a list is parted by commas.
func setText(into reflect.Value, text string) error {
	if into.Type() == headersType {
		return errNotText
	}
	if isTable(into.Type()) || isTables(into.Type()) {
		return errTable
	}
	if into.Type() == stringsType {
		into.Set(reflect.ValueOf(splitList(text)))
		return nil
	}
	return set(into, fromText(into.Type(), text))
}

// fromText returns the TOML value that a text stands for, by the type of who is to get it; the text itself if it
// stands for none, for set to complain about.
func fromText(t reflect.Type, text string) any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == durationType:
		return text
	case t.Kind() == reflect.Bool && (text == "true" || text == "false"):
		return text == "true"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case t.Kind() == reflect.Float64:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	return text
}

// splitList returns the trimmed elements of a list parted by commas; none for a text of blanks.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return []string{}
	}
	elements := strings.Split(text, ",")
	for i := range elements {
		elements[i] = strings.TrimSpace(elements[i])
	}
	return elements
}
