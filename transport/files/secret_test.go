package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/files"
)

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("from a file\r\n")
	lookup := func(name string) (string, bool) { return "from " + name, name == "THERE" }
	parse := func(text string) (string, error) {
		if strings.Contains(text, "bad") {
			return "", errors.New("it is bad")
		}
		return "<" + text + ">", nil
	}
	secret := func(spec string) (func() string, error) {
		return files.Secret(spec, lookup, files.Options{Every: -1}, parse)
	}
	for spec, want := range map[string]string{"itself": "<itself>", "env:THERE": "<from THERE>", "file:" + path: "<from a file>", "": "<>"} {
		get, err := secret(spec)
		if err != nil || get() != want {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for spec, want := range map[string]string{"a bad one": "it is bad", "env:MISSING": `there is no environment variable "MISSING"`, "file:" + path + "x": "no such file"} {
		if _, err := secret(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
	get, err := secret("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	write("renewed, and longer")
	if got := get(); got != "<renewed, and longer>" {
		t.Errorf("after it was renewed it is %s", got)
	}
	write("bad")
	if got := get(); got != "<renewed, and longer>" {
		t.Errorf("after it was broken it is %s", got)
	}
}
