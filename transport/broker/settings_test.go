package broker

import (
	"strings"
	"testing"
	"time"
)

// TestSettingsRefused says what is wrong.
func TestSettingsRefused(t *testing.T) {
	for want, edit := range map[string]func(*Settings){
		`wakeup mode "often": it is auto, notify or poll`:         func(s *Settings) { s.Wakeup = "often" },
		"the fetch grace is negative":                             func(s *Settings) { s.FetchGrace = -1 },
		"the quota window is negative":                            func(s *Settings) { s.QuotaWindow = -1 },
		"the poll interval is negative":                           func(s *Settings) { s.PollInterval = -1 },
		"the backup interval is negative":                         func(s *Settings) { s.BackupInterval = -1 },
		"the timeout is negative":                                 func(s *Settings) { s.Timeout = -1 },
		`the quota of tenant "acme" is negative`:                  func(s *Settings) { s.QuotaLimits = map[string]int64{"acme": -1} },
		`tenant "acme" has a quota, but there is no quota window`: func(s *Settings) { s.QuotaLimits = map[string]int64{"acme": 1} },
	} {
		s := Settings{URL: "redis://127.0.0.1:1"}
		edit(&s)
		if _, err := Open(t.Context(), s, nil, nil); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestURL is read, whatever it is not.
func TestURL(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h":                   "h:6379/0 plain",
		"redis://h:1/4":               "h:1/4 plain",
		"rediss://u:p@h:1":            "h:1/0 TLS u p",
		"redis://:p%40%3A%2F@h":       "h:6379/0 plain  p@:/",
		"redis://[::1]:7":             "[::1]:7/0 plain",
		"unix:///run/redis.sock?db=2": "/run/redis.sock/2 plain",
		"redis://h?pool_size=3&db=1":  "h:6379/1 plain",
		"redis://h?read_timeout=1h":   "h:6379/0 plain",
		"redis://h?max_retries=7":     "h:6379/0 plain",
	} {
		s := Settings{URL: url}
		if err := s.complete(); err != nil {
			t.Fatal(err)
		}
		o, err := s.options()
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		got := address(o) + " plain"
		if o.TLSConfig != nil {
			got = address(o) + " TLS"
		}
		if o.Username+o.Password != "" {
			got += " " + o.Username + " " + o.Password
		}
		if got != want || o.ReadTimeout != 2*time.Second || o.MaxRetries != -1 {
			t.Errorf("%s: %s, time-out %v, repetitions %d", url, got, o.ReadTimeout, o.MaxRetries)
		}
	}
}

// TestURLNeverTold: what cannot be read may be a password in the wrong place.
func TestURLNeverTold(t *testing.T) {
	for _, url := range []string{
		"redis://gout:gout/gout@h", "redis://gout:gout#gout@h", "gout:gout@h", "redis://h/gout", "redis://h?gout=gout",
		"redis://gout:%gout@h", "http://gout:gout@h", "redis://h?pool_size=gout", "redis://h/0/gout", "", "redis://h/-1",
	} {
		_, err := Open(t.Context(), Settings{URL: url}, nil, nil)
		if err == nil || strings.Contains(err.Error(), "gout") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestListNotifications(t *testing.T) {
	for flags, want := range map[string]bool{"Kl": true, "KA": true, "AKE": true, "lK": true, "": false, "K": false, "El": false, "KE$": false} {
		if got := listNotifications(flags); got != want {
			t.Errorf("%q: %v", flags, got)
		}
	}
}
