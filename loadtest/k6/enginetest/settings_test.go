package enginetest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSettingsThatMakeNoSenseStopTheRun before anything is sent.
func TestSettingsThatMakeNoSenseStopTheRun(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"LOAD_RAET", "5", "LOAD_RAET: no such setting"},
		{"LOAD_RATE", "fast", `LOAD_RATE is "fast"`},
		{"LOAD_RATE", "0", "it must be from"},
		{"LOAD_DURATION", "30", `LOAD_DURATION is "30"`},
		{"LOAD_DURATION", "25h", "it must be from"},
		{"LOAD_VUS", "1000000", "it must be from"},
		{"LOAD_URL", "localhost:8080", "LOAD_URL is no http or https URL"},
		{"LOAD_IMAGES", "3-9", "LOAD_IMAGES"},
		{"LOAD_IMAGE_SOURCE", "url", "LOAD_IMAGE_SOURCE needs LOAD_IMAGE_URL"},
		{"LOAD_WEIGHTS", "chats=1", `weight "chats=1"`},
		{"LOAD_WEIGHTS", "chat=0", "no weight above 0"},
		{"LOAD_HEADERS", `{"a":1}`, "LOAD_HEADERS must be"},
		{"LOAD_IGNORE_EOS", "yes", "LOAD_IGNORE_EOS is true or false"},
		{"LOAD_RECOVERY", "11s", "LOAD_RECOVERY"},
	} {
		e, err := Run(t.Context(), scriptsDir, "mixed.js", map[string]string{test.name: test.value})
		if err == nil || !strings.Contains(err.Error(), test.want) || len(e.Requests) > 0 {
			t.Errorf("%s=%s: %v, want %q", test.name, test.value, err, test.want)
		}
	}
	if _, err := Run(t.Context(), scriptsDir, "mixed.js", map[string]string{"LOAD_URL": "http://u:hunter2@host"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password: %v", err)
	}
	both := map[string]string{"LOAD_RATE": "10000", "LOAD_DURATION": "24h"}
	if _, err := Run(t.Context(), scriptsDir, "mixed.js", both); err == nil || !strings.Contains(err.Error(), "more than 10000000 requests") {
		t.Errorf("a load without end: %v", err)
	}
}

// TestCredentialsAreSentAndNotReported.
func TestCredentialsAreSentAndNotReported(t *testing.T) {
	d := startDemo(t)
	env := d.env()
	maps.Copy(env, map[string]string{"LOAD_API_KEY": "secret-1", "LOAD_HEADERS": `{"x-other":"secret-2"}`, "LOAD_ADMIN_TOKEN": "secret-3",
		"LOAD_IMAGE_SOURCE": "inline", "LOAD_IMAGE_URL": "https://u:secret-4@images.example/x.png?sig=secret-5"})
	e, err := Run(t.Context(), scriptsDir, "soak.js", env)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range e.Summary {
		if strings.Contains(text, "secret-") {
			t.Errorf("%s has a credential", where)
		}
	}
	for _, r := range e.Requests {
		want := []string{"Bearer secret-1"}
		if strings.HasPrefix(r.URL, d.admin) {
			want = []string{"Bearer secret-3"}
		}
		if got := r.Headers["Authorization"]; !slices.Equal(want, []string{got}) {
			t.Errorf("%s: Authorization %q", r.URL, got)
		}
	}
}

// TestReadmeNamesEachSettingAndScript and no other.
func TestReadmeNamesEachSettingAndScript(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(scriptsDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(scriptsDir, "lib", "settings.js"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(text []byte, pattern string) []string {
		all := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			all[string(m[1])] = true
		}
		return slices.Sorted(maps.Keys(all))
	}
	if got, want := names(readme, `(?m)^\| \x60(LOAD_\w+)\x60`), names(source, `(?m)^  (LOAD_\w+):`); !slices.Equal(got, want) {
		t.Errorf("README has %v\nsettings.js has %v", got, want)
	}
	if got, want := names(readme, `(?m)^\| \x60(\w+\.js)\x60`), scripts(t); !slices.Equal(got, want) {
		t.Errorf("README has %v\nthere are %v", got, want)
	}
}

// TestModulesHaveNamesOfTheirOwn: the engine tells them apart by these.
func TestModulesHaveNamesOfTheirOwn(t *testing.T) {
	for _, name := range scripts(t) {
		if _, err := os.Stat(filepath.Join(scriptsDir, "lib", name)); err == nil {
			t.Errorf("%s is also in lib", name)
		}
	}
}
