package conf

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// commentedOut is a line of the annotated file that would be a key if its # were taken away.
var commentedOut = regexp.MustCompile(`(?m)^# ([a-z_]+ += )`)

// inherited gives, for a key that is commented out there, the key whose default it has.
var inherited = regexp.MustCompile(`^gateway\.profiles\.[a-z]+\.`)

func TestAnnotatedIsTheDefault(t *testing.T) {
	c, err := Parse("coordinator.toml", Annotated, nil)
	if err != nil {
		t.Fatal(err)
	}
	if changes := c.Changes(); len(changes) != 0 {
		t.Errorf("differs from the defaults: %v", changes)
	}
	var types []string
	for _, step := range c.Pipeline.Steps {
		types = append(types, step.Type)
	}
	if want := []string{"replace-media-urls", "render", "encode", "prefill", "decode"}; !reflect.DeepEqual(types, want) {
		t.Errorf("steps are %v", types)
	}
}

func TestAnnotatedHasEveryKey(t *testing.T) {
	text := commentedOut.ReplaceAllString(string(Annotated), "$1")
	c, err := Parse("coordinator.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	defaults := Default()
	want := map[string]string{}
	for _, l := range leavesOf(reflect.ValueOf(&defaults).Elem(), "") {
		want[l.key] = format(l.value)
	}
	for _, l := range leavesOf(reflect.ValueOf(c).Elem(), "") {
		value := want[l.key]
		if value == "" {
			value = want[inherited.ReplaceAllString(l.key, "gateway.")]
		}
		if _, ok := c.origins[l.key]; !ok {
			t.Errorf("%s is missing", l.key)
		} else if got := format(l.value); got != value {
			t.Errorf("%s is %s, its default %s", l.key, got, value)
		}
	}
}

// Every key comes with a reason, on its own line.
func TestAnnotatedExplains(t *testing.T) {
	key := regexp.MustCompile(`^(# )?[a-z_]+ += `)
	for i, line := range strings.Split(string(Annotated), "\n") {
		if key.MatchString(line) && !strings.Contains(line[2:], " # ") {
			t.Errorf("line %d says nothing about its key: %s", i+1, line)
		}
	}
}

func TestKeys(t *testing.T) {
	got := Keys(&sample{})
	want := []string{"address", "timeout", "count", "small", "big", "ratio", "on", "domains", "limit", "retry.max"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	seen := map[string]bool{}
	for _, key := range Keys(Config{}) {
		seen[key] = true
	}
	for _, key := range []string{"log_level", "gateway.profiles.render.breaker.enabled", "actors.pools.release.queue", "pipeline.kv_connector"} {
		if !seen[key] {
			t.Errorf("%s is no key of Config", key)
		}
	}
}
