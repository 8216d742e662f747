package load

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Sample is what a process has spent since it began. Linux only.
type Sample struct {
	User, System time.Duration // to 10 ms
	RSS, PeakRSS int64         // bytes
}

// CPU is user and system time.
func (s Sample) CPU() time.Duration { return s.User + s.System }

// ReadProcess samples a process of this machine.
func ReadProcess(pid int) (Sample, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Sample{}, fmt.Errorf("load: process %d cannot be watched: %w", pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Sample{}, fmt.Errorf("load: process %d cannot be watched: %w", pid, err)
	}
	var s Sample
	if s.User, s.System, err = parseStat(stat); err == nil {
		s.RSS, s.PeakRSS, err = parseStatus(status)
	}
	return s, err
}

// sample samples the target's process; nil if it has none.
func (t Target) sample() (*Sample, error) {
	if t.PID == 0 {
		return nil, nil
	}
	s, err := ReadProcess(t.PID)
	return &s, err
}

// tick is the unit of times in /proc/PID/stat: 100 Hz wherever Go runs.
const tick = 10 * time.Millisecond

// parseStat reads /proc/PID/stat. The second field is the program's name in
// parentheses, and may hold spaces and parentheses of its own.
func parseStat(text []byte) (user, system time.Duration, err error) {
	const utime = 14 - 3 // the 14th field, of those from the 3rd on
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < utime+2 || !bytes.Contains(text, []byte(")")) {
		return 0, 0, errors.New("load: /proc/PID/stat cannot be read")
	}
	u, err := strconv.ParseInt(string(fields[utime]), 10, 64)
	s, err2 := strconv.ParseInt(string(fields[utime+1]), 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return 0, 0, fmt.Errorf("load: /proc/PID/stat: %w", err)
	}
	return time.Duration(u) * tick, time.Duration(s) * tick, nil
}

// parseStatus reads the memory in /proc/PID/status.
func parseStatus(text []byte) (rss, peak int64, err error) {
	if rss, err = kilobytes(text, "VmRSS:"); err == nil {
		peak, err = kilobytes(text, "VmHWM:")
	}
	return rss, peak, err
}

func kilobytes(text []byte, name string) (int64, error) {
	for line := range bytes.Lines(text) {
		value, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		fields := bytes.Fields(value)
		if len(fields) != 2 || string(fields[1]) != "kB" {
			break
		}
		n, err := strconv.ParseInt(string(fields[0]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("load: /proc/PID/status: %w", err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("load: /proc/PID/status has no %s", name)
}

// usage is what a process has spent between two samples.
func usage(before, after Sample, requests int64, pid int) *Process {
	p := &Process{PID: pid, UserSeconds: (after.User - before.User).Seconds(), SystemSeconds: (after.System - before.System).Seconds(),
		RSSBefore: before.RSS, RSSAfter: after.RSS, PeakRSS: after.PeakRSS}
	if requests > 0 {
		p.CPUPerRequest = float64((after.CPU() - before.CPU()).Microseconds()) / float64(requests)
	}
	return p
}
