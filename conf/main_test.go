package conf

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// mustParse parses text that has no faults. The file is called test.toml.
func mustParse(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	c, err := Parse("test.toml", []byte(text), environ)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantError fails the test unless err says exactly want.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want:\n%s", want)
	}
	if err.Error() != want {
		t.Errorf("error is\n%s\nwant\n%s", err, want)
	}
}

// oneStep is the shortest pipeline there can be.
const oneStep = "\n[[pipeline.steps]]\ntype = \"decode\"\n"
