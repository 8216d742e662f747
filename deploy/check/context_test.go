package check

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copyContext copies a directory, less what the .dockerignore names. Patterns are
// paths with nothing wild in them, or *.ext, which is for names at the root, as it is
// for Docker.
func copyContext(from, ignore, to string) error {
	patterns, err := ignorePatterns(ignore)
	if err != nil {
		return err
	}
	return filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		ignored := slices.ContainsFunc(patterns, func(pattern string) bool {
			matched, _ := path.Match(pattern, inside) // the patterns were looked at
			return matched
		})
		switch {
		case ignored && d.IsDir():
			return filepath.SkipDir
		case ignored || d.IsDir():
			return nil
		}
		return copyFile(file, filepath.Join(to, inside))
	})
}

// ignorePatterns returns the lines of a .dockerignore, and refuses those that
// path.Match may understand differently from Docker.
func ignorePatterns(ignore string) (patterns []string, err error) {
	for line := range strings.Lines(ignore) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		plain, extension := strings.CutPrefix(line, "*.")
		if strings.ContainsAny(plain, `*?[!\`) || extension && strings.Contains(plain, "/") {
			return nil, fmt.Errorf(".dockerignore: %q is more than a path or *.ext", line)
		}
		patterns = append(patterns, line)
	}
	return patterns, nil
}

func TestContext(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "context")
	for _, file := range []string{"go.mod", "conf/go.mod", "conf/conf.test", "conf/testdata/a", "check.test", "cpu.prof", "docs/a/b", "cmd/docs/a"} {
		name := filepath.Join(from, file)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyContext(from, "# none of\ndocs\nconf/testdata\n\n*.test\n*.prof\n", to); err != nil {
		t.Fatal(err)
	}
	var copied []string
	err := fs.WalkDir(os.DirFS(to), ".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			copied = append(copied, file)
		}
		return err
	})
	if want := []string{"cmd/docs/a", "conf/conf.test", "conf/go.mod", "go.mod"}; err != nil || !slices.Equal(copied, want) {
		t.Errorf("want %q, got %q, %v", want, copied, err)
	}
	for _, line := range []string{"**/*.test", "!go.mod", "*", "conf/*.test", "*.d/a", "?", "[a]", `a\b`} {
		if err := copyContext(from, line+"\n", to); err == nil {
			t.Errorf("%q was not refused", line)
		}
	}
}

// TestContextIsWithoutProducts: what git leaves out is no source, and does not go to
// the engine either.
func TestContextIsWithoutProducts(t *testing.T) {
	patterns, err := ignorePatterns(readFile(t, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(readFile(t, ".gitignore")) {
		if product := strings.Trim(strings.TrimSpace(line), "/"); !slices.Contains(patterns, product) {
			t.Errorf(".dockerignore is without %s", product)
		}
	}
}
