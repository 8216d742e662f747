package main

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// root is the repository's, from here.
const root = "../.."

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readFile reads a file of the repository.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
