package connectors

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRegistryFindsByName(t *testing.T) {
	r := NewRegistry[int]("kv")
	r.Register("kv-b", func() (int, error) { return 2, nil })
	r.Register("kv-a", func() (int, error) { return 0, errors.New("it cannot be used") })
	if n, err := r.New("kv-b"); n != 2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if _, err := r.New("kv-a"); err == nil || err.Error() != "it cannot be used" {
		t.Errorf("%v", err)
	}
	if _, err := r.New("kv-c"); err == nil || err.Error() != `unknown kv connector "kv-c" (there are: kv-a, kv-b)` {
		t.Errorf("%v", err)
	}
	if names := r.Names(); !slices.Equal(names, []string{"kv-a", "kv-b"}) {
		t.Errorf("%v", names)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name can be taken twice")
		}
	}()
	r.Register("kv-a", nil)
}
