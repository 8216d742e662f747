package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	unitName     = "coordinator.service"
	unitBinary   = "/usr/local/bin/coordinator"
	unitConfig   = "/etc/coordinator/coordinator.toml"
	mostExposure = 20 // of 100, by systemd's own measure
)

// TestUnitVerifies has systemd read the unit, with the binary where it is here.
func TestUnitVerifies(t *testing.T) {
	unit := readFile(t, "deploy/systemd", unitName)
	if out := verifyUnit(t, unit); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	for _, planted := range []struct{ old, new, want string }{
		{"ProtectSystem=strict", "ProtectSytem=strict", "ProtectSytem"},
		{"TimeoutStopSec=40s", "TimeoutStopSec=forty", "forty"},
		{unitBinary + " --config", "/usr/local/bin/coordinater --config", "coordinater"},
	} {
		if out := verifyUnit(t, strings.ReplaceAll(unit, planted.old, planted.new)); !strings.Contains(out, planted.want) {
			t.Errorf("%s was not found: %q", planted.new, out)
		}
	}
}

// verifyUnit returns all that systemd-analyze has to say.
func verifyUnit(t *testing.T, unit string) string {
	t.Helper()
	file := writeUnit(t, strings.ReplaceAll(unit, unitBinary, theImage(t).binary()))
	out, err := command(t, "systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// writeUnit writes a unit for systemd-analyze, without which it skips the test.
func writeUnit(t *testing.T, unit string) string {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("!!! LEFT OUT: the systemd unit. It needs systemd-analyze (Debian: apt-get install systemd).")
	}
	file := filepath.Join(t.TempDir(), unitName)
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestUnitIsHardened(t *testing.T) {
	file := writeUnit(t, readFile(t, "deploy/systemd", unitName))
	out, err := command(t, "systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold="+strconv.Itoa(mostExposure), file).CombinedOutput()
	if err != nil {
		t.Errorf("more exposed than %d: %v\n%s", mostExposure, err, out)
	}
}

// TestUnitSeesTheSystem: ProcSubset=pid hides what Go takes the backlog of its
// listeners from, which then is 128, and when the machine was started, without which
// /metrics does not say when the process was.
func TestUnitSeesTheSystem(t *testing.T) {
	if subset := unitSettings(t)["ProcSubset"]; subset != "" && subset != "all" {
		t.Errorf("ProcSubset=%s hides /proc/sys/net/core/somaxconn and /proc/stat", subset)
	}
}

// unitSettings returns the last value of each key of the unit.
func unitSettings(t *testing.T) map[string]string {
	t.Helper()
	unit := map[string]string{}
	for line := range strings.Lines(readFile(t, "deploy/systemd", unitName)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			unit[key] = value
		}
	}
	return unit
}

// TestUnitAgrees: the times and the memory of the unit with those of the default
// configuration, and its commands with those that there are.
func TestUnitAgrees(t *testing.T) {
	unit := unitSettings(t)
	s, err := settingsOf("", nil)
	if err != nil {
		t.Fatal(err)
	}
	need := s.duration("server.drain_delay") + s.duration("server.shutdown_timeout") + lastTraces
	if stop, err := time.ParseDuration(unit["TimeoutStopSec"]); err != nil || stop < need {
		t.Errorf("TimeoutStopSec is %s, a drain may take %v: %v", unit["TimeoutStopSec"], need, err)
	}
	if unit["ExecReload"] != "/bin/kill -HUP $MAINPID" {
		t.Errorf("ExecReload is %q, a reload is SIGHUP", unit["ExecReload"])
	}

	here := func(line string) *exec.Cmd {
		words := strings.Fields(strings.ReplaceAll(line, unitConfig, filepath.Join(repository, "conf/coordinator.toml")))
		if words[0] != unitBinary {
			t.Fatalf("the unit runs %s", words[0])
		}
		cmd := command(t, theImage(t).binary(), words[1:]...)
		cmd.Env = loopback
		return cmd
	}
	if out, err := here(unit["ExecStartPre"]).CombinedOutput(); err != nil {
		t.Errorf("ExecStartPre: %v\n%s", err, out)
	}
	c, err := start(t, here(unit["ExecStart"]))
	if err != nil {
		t.Fatal(err)
	}
	gigabytes, err := strconv.ParseInt(strings.TrimSuffix(unit["MemoryMax"], "G"), 10, 64)
	if err != nil || float64(gigabytes<<30) < headroom*float64(c.memory) {
		t.Errorf("MemoryMax is %s, the Go runtime keeps to %d MB: %v", unit["MemoryMax"], c.memory>>20, err)
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
}
