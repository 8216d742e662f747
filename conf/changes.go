package conf

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Change is a setting that is not what it would be without file, environment and flags.
type Change struct {
	// Key is the full key; of a step's param "pipeline.steps[1].address", steps counted from 1.
	Key string
	// Value is as the file would have it, durations as Go prints them: "1m30s" for "90s".
	Value string
	// Origin is where it was set: "coordinator.toml:12", "environment COORDINATOR_LOG_LEVEL", "flag -v";
	// "program" if code assigned the field.
	Origin string
}

// Changes lists what differs from the defaults, sorted by key. Params of a step are among it once the step's
// [Params.Decode] has run. What a profile sets for itself is always listed, even to what it would inherit.
func (c *Config) Changes() []Change {
	defaults := Default()
	changes := changesOf(reflect.ValueOf(&defaults).Elem(), reflect.ValueOf(c).Elem(), c.origins, "")
	for _, step := range c.Pipeline.Steps {
		if step.Params != nil {
			changes = append(changes, step.Params.changes...)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return changes
}

// Settings lists every key with the value that is in force, as [Config.Changes] lists those that differ from the
// defaults. The origin of what nobody has set is "default". Of a step it has the type, and the params once their
// Decode has run.
func (c *Config) Settings() []Change {
	all := settingsOf(reflect.ValueOf(c).Elem(), c.origins, "")
	changed := map[string]Change{}
	for _, ch := range c.Changes() {
		changed[ch.Key] = ch
	}
	for i, step := range c.Pipeline.Steps {
		all = append(all, Change{Key: fmt.Sprintf("pipeline.steps[%d].type", i+1), Value: strconv.Quote(step.Type), Origin: "program"})
		if p := step.Params; p != nil {
			all[len(all)-1].Origin = filePlace(p.file, p.line).text
			if p.decoded.IsValid() {
				all = append(all, settingsOf(p.decoded, p.origins, p.key)...)
			}
		}
	}
	for i := range all {
		if ch, ok := changed[all[i].Key]; ok {
			all[i] = ch // code may have set it, which no origin says
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// settingsOf lists all keys of a struct, whose own key is prefix.
func settingsOf(v reflect.Value, origins map[string]origin, prefix string) []Change {
	var all []Change
	for _, l := range leavesOf(v, "") {
		key := l.key
		if prefix != "" {
			key = prefix + "." + key
		}
		if l.value.Type() == headersType {
			all = append(all, headerChanges(l.value, origins, l.key, key)...)
		} else if value := l.text(); value != "" { // what a profile inherits is listed where it comes from
			all = append(all, Change{Key: key, Value: value, Origin: cmp.Or(origins[l.key].text, "default")})
		}
	}
	return all
}

// Override sets one key after the file and the environment; from says on whose behalf, as in "flag -v". The
// value is written as in the environment. If it cannot be, c stays as it was.
func (c *Config) Override(key, value, from string) error {
	before := *c
	c.origins = maps.Clone(c.origins)
	var found faults
	c.override(key, value, origin{text: from}, &found)
	if err := found.err(); err != nil {
		*c = before
		return err
	}
	return nil
}

func (c *Config) override(key, value string, from origin, found *faults) {
	leaves := leavesOf(reflect.ValueOf(c).Elem(), "")
	i := slices.IndexFunc(leaves, func(l leaf) bool { return l.key == key })
	if i < 0 {
		known := make([]field, len(leaves))
		for i, l := range leaves {
			known[i].name = l.key
		}
		found.add(from, key, "unknown key%s", suggest(key, known))
		return
	}
	if err := setText(leaves[i].value, value); err != nil {
		found.add(from, key, "%v", err)
		return
	}
	if c.origins == nil {
		c.origins = map[string]origin{}
	}
	c.origins[key] = from
	c.validate(found)
}

// changesOf lists the keys of a struct whose values differ from those of another of its type.
func changesOf(defaults, now reflect.Value, origins map[string]origin, prefix string) []Change {
	var changes []Change
	before := leavesOf(defaults, "")
	for i, l := range leavesOf(now, "") {
		key := l.key
		if prefix != "" {
			key = prefix + "." + key
		}
		if l.value.Type() == headersType {
			changes = append(changes, headerChanges(l.value, origins, l.key, key)...)
			continue
		}
		if sameValue(l.value, before[i].value) {
			continue
		}
		changes = append(changes, Change{Key: key, Value: l.text(), Origin: cmp.Or(origins[l.key].text, "program")})
	}
	return changes
}

// format writes a value for people; nothing for a pointer to none.
func format(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch {
	case isTable(v.Type()):
		return formatTable(v)
	case isTables(v.Type()):
		return formatTables(v)
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return value.String()
	case string:
		return strconv.Quote(value)
	case Secret:
		if value == "" {
			return `""`
		}
		return masked(string(value))
	case map[string]string: // secret, see headerChanges
		return ""
	case []string:
		quoted := make([]string, len(value))
		for i, text := range value {
			quoted[i] = strconv.Quote(text)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	default:
		return fmt.Sprint(value)
	}
}
