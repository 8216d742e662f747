// Package check checks what is deployed, offline: manifests after kustomize against
// the types of the APIs that they are for, Envoy's configuration against its own, the
// systemd unit, what is in the image; and that all of them agree with each other, with
// the coordinator's configuration, and with a coordinator that runs.
//
// It is a module of its own so that nobody else pays for its dependencies, and has
// nothing but tests.
package check

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// repository is where the repository is, seen from this package.
const repository = "../.."

// scratch is a directory for what all tests share.
var scratch string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == jailWord {
		fmt.Fprintln(os.Stderr, enterJail(os.Args[2:])) // it returns only if it fails
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "deploy-check")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(scratch)
		os.Exit(code)
	}))
}

// readFile returns a file of the repository.
func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{repository}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
