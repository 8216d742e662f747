package ec

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatPrefillIsTold(t *testing.T) {
	merged := wire.Raw(`{"h":{"z":1.0,"a":9007199254740993}}`)
	for name, want := range map[string]string{"ec-nixl": string(merged[0]), "ec-mooncake": string(merged[0]), "ec-shared-storage": ""} {
		c, err := New(name)
		if err != nil || c.Name() != name {
			t.Fatalf("%s: %v", name, err)
		}
		got := ""
		for _, piece := range c.Prefill(merged) {
			got += string(piece)
		}
		if got != want {
			t.Errorf("%s: %s", name, got)
		}
		if c.Prefill(nil) != nil {
			t.Errorf("%s tells prefill of nothing", name)
		}
	}
}

func TestUnknownConnectorNamesThoseThereAre(t *testing.T) {
	if _, err := New("ec-nix"); err == nil || !strings.Contains(err.Error(), `"ec-nix" (there are: ec-mooncake, ec-nixl, ec-shared-storage)`) {
		t.Errorf("%v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name can be taken twice")
		}
	}()
	Register("ec-nixl", nil)
}
