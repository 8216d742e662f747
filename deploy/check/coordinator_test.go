package check

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a program that is run may take, and each request to it.
const patience = time.Minute

// command is a program that is killed when its time or the test is over.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, name, args...)
}

// coordinator is one that runs.
type coordinator struct {
	cmd     *exec.Cmd
	address string        // of its clients' listener
	memory  int64         // what its runtime keeps to, in bytes
	mounted bool          // its root is a mount of its own, if it is in a jail
	rest    chan struct{} // closed when its log has ended
	log     bytes.Buffer  // to be read when rest is closed
	wait    func() error  // until it has ended; may be called again
}

// loopback are variables by which a coordinator serves here, whatever its file says.
var loopback = []string{"COORDINATOR_SERVER_LISTEN_ADDR=127.0.0.1:0", "COORDINATOR_ADMIN_LISTEN_ADDR=127.0.0.1:0"}

// start starts a coordinator, a command of the test, and waits until it serves. If
// it was not stopped when the test ends it is killed.
func start(t *testing.T, cmd *exec.Cmd) (*coordinator, error) {
	t.Helper()
	out, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	c := &coordinator{cmd: cmd, rest: make(chan struct{}), mounted: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.wait = sync.OnceValue(func() error {
		<-c.rest
		return cmd.Wait()
	})
	t.Cleanup(func() {
		cmd.Process.Kill() // an error says that it has ended
		c.wait()
	})
	log := bufio.NewReader(io.TeeReader(out, &c.log))
	for c.address == "" {
		line, err := log.ReadString('\n')
		if err != nil {
			break
		}
		c.read(strings.TrimSuffix(line, "\n"))
	}
	go func() {
		defer close(c.rest)
		io.Copy(io.Discard, log) // an error is the log's end too
	}()
	if c.address == "" {
		return nil, fmt.Errorf("it does not serve: %v\n%s", c.wait(), &c.log)
	}
	return c, nil
}

// read takes what a line of the log says.
func (c *coordinator) read(line string) {
	var entry struct {
		Msg, Address string
		Bytes        int64
	}
	if json.Unmarshal([]byte(line), &entry) != nil {
		c.mounted = c.mounted && line != noMounts
		return // not of its log
	}
	switch entry.Msg {
	case "memory limit set":
		c.memory = entry.Bytes
	case "serving":
		c.address = entry.Address
	}
}

// stop has it drain, and returns an error unless it ended by itself with status 0.
func (c *coordinator) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := c.wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, &c.log)
	}
	return nil
}

// answers returns an error unless a path is answered with 200.
func (c *coordinator) answers(path string) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Get("http://" + c.address + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// checkConfig runs "coordinator check" and returns what it finds wrong.
func checkConfig(t *testing.T, binary, file string, environ []string) error {
	t.Helper()
	cmd := command(t, binary, "check", "--config", file)
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("coordinator check: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// talker is a program that says much: lines longer than a pipe holds, before it
// serves and after. SIGTERM ends it.
const talker = `
trap 'kill $!; exit 0' TERM
sleep 60 >/dev/null 2>&1 &
long() { head -c 200000 /dev/zero | tr '\0' x >&2; echo >&2; }
long
echo '{"msg": "serving", "address": "127.0.0.1:1"}' >&2
long
wait
`

// TestStartReadsLongLines: a program whose log nobody reads on would never end.
func TestStartReadsLongLines(t *testing.T) {
	c, err := start(t, command(t, "sh", "-c", talker))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
	if c.address != "127.0.0.1:1" || c.log.Len() < 400_000 {
		t.Errorf("it serves at %q, and said %d bytes", c.address, c.log.Len())
	}
}

// TestStartEndsWithTheTest: one that a failed test has not stopped is ended and
// waited for.
func TestStartEndsWithTheTest(t *testing.T) {
	var c *coordinator
	t.Run("not stopped", func(t *testing.T) {
		cmd := command(t, theImage(t).binary(), "--config", filepath.Join(repository, "conf/coordinator.toml"))
		cmd.Env = loopback
		var err error
		if c, err = start(t, cmd); err != nil {
			t.Fatal(err)
		}
	})
	if c != nil && c.cmd.ProcessState == nil {
		t.Error("it still runs")
	}
}
