package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
)

// coordinator is one that runs.
type coordinator struct {
	cmd     *exec.Cmd
	address string        // of its clients' listener
	memory  int64         // what its runtime keeps to, in bytes
	mounted bool          // its root is a mount of its own, if it is in a jail
	rest    chan struct{} // closed when its log has ended
	log     bytes.Buffer  // to be read when rest is closed
}

// loopback are variables by which a coordinator serves here, whatever its file says.
var loopback = []string{"COORDINATOR_SERVER_LISTEN_ADDR=127.0.0.1:0", "COORDINATOR_ADMIN_LISTEN_ADDR=127.0.0.1:0"}

// start starts a coordinator and waits until it serves.
func start(cmd *exec.Cmd) (*coordinator, error) {
	out, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	c := &coordinator{cmd: cmd, rest: make(chan struct{}), mounted: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(io.TeeReader(out, &c.log))
	for c.address == "" && lines.Scan() {
		var entry struct {
			Msg, Address string
			Bytes        int64
		}
		if json.Unmarshal(lines.Bytes(), &entry) != nil {
			c.mounted = c.mounted && lines.Text() != noMounts
			continue // not of its log
		}
		switch entry.Msg {
		case "memory limit set":
			c.memory = entry.Bytes
		case "serving":
			c.address = entry.Address
		}
	}
	if c.address == "" {
		return nil, fmt.Errorf("it does not serve: %v\n%s", cmd.Wait(), &c.log)
	}
	go func() {
		defer close(c.rest)
		for lines.Scan() {
		}
	}()
	return c, nil
}

// stop has it drain, and returns an error unless it ended by itself with status 0.
func (c *coordinator) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-c.rest
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, &c.log)
	}
	return nil
}

// answers returns an error unless a path is answered with 200.
func (c *coordinator) answers(path string) error {
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Get("http://" + c.address + path)
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
func checkConfig(binary, file string, environ []string) error {
	cmd := exec.Command(binary, "check", "--config", file)
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("coordinator check: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
