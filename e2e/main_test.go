package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// programs is where the coordinator is built for all tests.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(programs)
		os.Exit(code)
	}))
}

// coordinatorProgram builds the command, once.
var coordinatorProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(programs, "coordinator")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/coordinator").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

// behindEach runs a test behind each gateway.
func behindEach(t *testing.T, test func(t *testing.T, g gateway)) {
	if testing.Short() {
		t.Skip("!!! LEFT OUT: coordinators behind real gateways (not with -short)")
	}
	for _, g := range []gateway{haproxy{}, nginx{}} {
		t.Run(g.name(), func(t *testing.T) {
			t.Parallel()
			if programOf(g) == "" {
				t.Skipf("!!! LEFT OUT: coordinators behind %[1]s. It needs %[1]s (Debian: apt-get install %[1]s).", g.name())
			}
			test(t, g)
		})
	}
}
