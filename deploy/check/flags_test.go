package check

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// releaseBuild returns CGO_ENABLED and the arguments with which tools/release runs
// go, read from its source, for the version of the tests.
func releaseBuild(t *testing.T) []string {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, "tools/release/main.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"r.Version": testVersion, "binary": "coordinator", "program": "coordinator"}
	var environ, arguments []string
	ast.Inspect(source, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch words := textsOf(call.Args, values); types.ExprString(call.Fun) {
		case "exec.Command":
			if slices.Equal(words[:2], []string{"go", "build"}) {
				arguments = words[1:]
			}
		case "append":
			for _, word := range words {
				if strings.HasPrefix(word, "CGO_ENABLED=") {
					environ = append(environ, word)
				}
			}
		}
		return true
	})
	if len(environ) != 1 || len(arguments) == 0 {
		t.Fatalf("how tools/release builds was not found: %q, %q", environ, arguments)
	}
	return append(environ, arguments...)
}

// textsOf returns what expressions of strings come to. One that is not known stands
// for itself, so that it agrees with nothing.
func textsOf(expressions []ast.Expr, values map[string]string) (texts []string) {
	for _, e := range expressions {
		text, known := values[types.ExprString(e)]
		switch x := e.(type) {
		case *ast.BasicLit:
			text, _ = strconv.Unquote(x.Value)
		case *ast.BinaryExpr:
			text = strings.Join(textsOf([]ast.Expr{x.X, x.Y}, values), "")
		default:
			if !known {
				text = types.ExprString(e)
			}
		}
		texts = append(texts, text)
	}
	return texts
}

// dockerBuild returns the same of the Dockerfile: its commands are run by a shell
// whose go says how it was called, and does nothing.
func dockerBuild(t *testing.T, dockerfile string) []string {
	t.Helper()
	dir := t.TempDir()
	const says = "#!/bin/sh\nprintf '%s\\n' \"CGO_ENABLED=$CGO_ENABLED\" \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(says), 0o755); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, i := range instructions(dockerfile) {
		if i.word != "RUN" || i.rest == modDownload {
			continue
		}
		cmd := command(t, "sh", "-c", i.rest)
		cmd.Env = []string{"PATH=" + dir, "VERSION=" + testVersion}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", i.rest, err, out)
		}
		said = append(said, strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")...)
	}
	return said
}
