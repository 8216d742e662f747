package conf

import (
	"maps"
	"reflect"
	"slices"
)

// Differences lists the keys whose values differ in two configurations, sorted: what was set, by whom, and whether it
// is a default, does not count. It tells keys and never values, which may be credentials. Params count once the
// Decode of both has run, under the number that the step has in c; "pipeline.steps" is among the keys if there are
// other steps than before, or in another order.
func (c *Config) Differences(before *Config) []string {
	keys := differences(reflect.ValueOf(before).Elem(), reflect.ValueOf(c).Elem(), "", func(string) bool { return true })
	earlier := map[string]*Params{}
	for _, step := range before.Pipeline.Steps {
		earlier[step.Type] = step.Params
	}
	for _, step := range c.Pipeline.Steps {
		if params, ok := earlier[step.Type]; ok {
			keys = append(keys, step.Params.differences(params)...)
		}
	}
	if !slices.EqualFunc(c.Pipeline.Steps, before.Pipeline.Steps, func(a, b Step) bool { return a.Type == b.Type }) {
		keys = append(keys, "pipeline.steps")
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// differences lists the keys of a step's params that differ.
func (p *Params) differences(before *Params) []string {
	switch {
	case p == nil || before == nil:
		return nil // made by code: there are no settings
	case !p.decoded.IsValid() || !before.decoded.IsValid() || p.decoded.Type() != before.decoded.Type():
		if reflect.DeepEqual(p.tree, before.tree) {
			return nil
		}
		return []string{p.key + ".params"}
	}
	// What nobody has set may still differ, if it is taken from the pipeline's: then that is the key to tell.
	return differences(before.decoded, p.decoded, p.key, func(key string) bool {
		_, now := p.origins[key]
		_, then := before.origins[key]
		return now || then
	})
}

// differences lists the keys whose values differ in two structs of one type, of those that count; prefix is the
// struct's own key.
func differences(before, now reflect.Value, prefix string, counts func(key string) bool) (keys []string) {
	earlier := leavesOf(before, "")
	for i, l := range leavesOf(now, "") {
		if !counts(l.key) {
			continue
		}
		key := l.key
		if prefix != "" {
			key = prefix + "." + key
		}
		if l.value.Type() == headersType {
			keys = append(keys, headerDifferences(earlier[i].value, l.value, key)...)
		} else if !sameValue(earlier[i].value, l.value) {
			keys = append(keys, key)
		}
	}
	return keys
}

// sameValue compares the values of leaves. A list that is empty is as good as none.
func sameValue(a, b reflect.Value) bool {
	if (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// headerDifferences lists the headers of a table that are not what they were.
func headerDifferences(before, now reflect.Value, key string) (keys []string) {
	was, is := before.Interface().(map[string]string), now.Interface().(map[string]string)
	names := maps.Clone(is)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, was)
	for name := range names {
		old, had := was[name]
		if value, has := is[name]; had != has || old != value {
			keys = append(keys, join(key, name))
		}
	}
	return keys
}
