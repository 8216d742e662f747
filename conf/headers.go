package conf

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// headersType is a table whose keys are free: names of headers, with their values. The values may be credentials, so
// nothing here repeats them: no fault, no change. That they are not resolved here is for the same reason.
var headersType = reflect.TypeFor[map[string]string]()

// errNotText refuses such a table where one text should be all of it. The names could not be told from a variable's:
// X-Api-Key and x_api_key have the same capitals.
var errNotText = errors.New(`is a table, to be set in the file only; a value there may be "env:NAME"`)

// headers assigns such a table.
func (a *assigner) headers(into reflect.Value, value any, at *node, key string) {
	tree, ok := value.(map[string]any)
	if !ok {
		a.fault(a.place(at), key, `want a table, such as { Authorization = "env:NAME" }`)
		return
	}
	a.origins[key] = a.place(at)
	headers := make(map[string]string, len(tree))
	for name, value := range tree {
		here := a.place(at.child(name))
		text, ok := value.(string)
		if !ok {
			a.fault(here, join(key, name), "want a string")
			continue
		}
		headers[name] = text
		a.origins[join(key, name)] = here
	}
	if len(headers) > 0 { // none is nil, as by default
		into.Set(reflect.ValueOf(headers))
	}
}

// headerChanges lists the headers of a table.
func headerChanges(table reflect.Value, origins map[string]origin, at, key string) []Change {
	headers := table.Interface().(map[string]string)
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		origin := cmp.Or(origins[join(at, name)].text, "program")
		changes = append(changes, Change{Key: join(key, name), Value: masked(headers[name]), Origin: origin})
	}
	return changes
}

// masked shows where a header's value comes from, and never the value.
func masked(value string) string {
	if strings.HasPrefix(value, "env:") || strings.HasPrefix(value, "file:") {
		return strconv.Quote(value)
	}
	return "(set)"
}
