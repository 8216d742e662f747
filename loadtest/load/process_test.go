package load

import (
	"os"
	"testing"
	"time"
)

func TestStat(t *testing.T) {
	const rest = ` S 1 28466 26849 0 -1 4194304 100 0 0 0 123 45 7 8 20 0 1 0 1653082 3133440 376`
	for _, name := range []string{"(coordinator)", "(a b)", "(a) R 1 (b)"} {
		user, system, err := parseStat([]byte("28471 " + name + rest))
		if err != nil || user != 1230*time.Millisecond || system != 450*time.Millisecond {
			t.Errorf("%s: %v %v %v", name, user, system, err)
		}
	}
	for _, text := range []string{"", "1 (x", "1 (x) S 1", "1 (x) S 1 2 3 4 5 6 7 8 9 10 a b c", rest} {
		if _, _, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestStatus(t *testing.T) {
	rss, peak, err := parseStatus([]byte("Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t    1684 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n"))
	if err != nil || rss != 1<<20 || peak != 1684<<10 {
		t.Errorf("%d %d %v", rss, peak, err)
	}
	for _, text := range []string{"", "VmRSS:\t1 kB\n", "VmRSS:\t1 MB\nVmHWM:\t1 kB\n", "VmRSS:\tx kB\nVmHWM:\t1 kB\n", "VmRSS:\nVmHWM:\t1 kB\n"} {
		if _, _, err := parseStatus([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestOwnProcess(t *testing.T) {
	s, err := ReadProcess(os.Getpid())
	if err != nil || s.RSS <= 0 || s.PeakRSS < s.RSS || s.CPU() < 0 {
		t.Errorf("%+v %v", s, err)
	}
}
