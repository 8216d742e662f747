package load

import (
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWindowsOfARun: what ends in a second counts in its window, by what became of
// it, and a rest of a window goes to the one before.
func TestWindowsOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		o := Options{Target: Target{URL: "http://server.test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if asked.Add(1) > 10 {
				return answer(429, `{"error":{"code":"queue_full"}}`), nil
			}
			return after(r, 110*time.Millisecond)
		})}, Rate: 10, MaxInFlight: 1, Count: 1e6, Duration: 3100 * time.Millisecond, Grace: time.Minute}
		r := mustRun(t, o)
		if len(r.Windows) != 3 {
			t.Fatalf("%+v", r.Windows)
		}
		var sum Counts
		for i, w := range r.Windows {
			if w.At != float64(i) || i < 2 && w.Seconds != 1 {
				t.Errorf("window %d: at %v, %v s", i, w.At, w.Seconds)
			}
			sum.Begun += w.Begun
			sum.OK += w.OK
			sum.Failed += w.Failed
			sum.Missed += w.Missed
			if (w.OK > 0) != (w.Total.P50 > 107_000 && w.Total.P99 < 113_000) || w.Total.P50 < w.FirstEvent.P50 {
				t.Errorf("window %d: %+v", i, w)
			}
		}
		if c := r.Counts; sum.Begun != c.Begun || sum.OK != c.OK || sum.Failed != c.Failed || sum.Missed != c.Missed || c.Missed == 0 || c.Failed == 0 {
			t.Errorf("%+v, windows %+v", c, sum)
		}
		last := r.Windows[2]
		if last.Errors["queue_full"] != last.Failed || last.Seconds < 1 || last.Seconds > 1.5 {
			t.Errorf("%+v", last)
		}
	})
}

// TestWindowsOfALongRun: there are never more than there may be, and none of what
// was counted is lost as they get wider.
func TestWindowsOfALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := windows{began: time.Now(), width: time.Second}
		const seconds = 4000
		for i := range seconds {
			w.now().end(outcome{status: 200, first: time.Millisecond, total: time.Duration(1+i%10) * time.Second, events: 2})
			w.now().end(outcome{failure: Refused})
			w.now().end(outcome{status: 503, code: "breaker_open"})
			time.Sleep(time.Second)
		}
		all := w.report(seconds * time.Second)
		if len(all) != 500 || all[0].Seconds != 8 || all[499].At != 499*8 || all[499].Seconds != 8 {
			t.Fatalf("%d windows, %+v, %+v", len(all), all[0], all[len(all)-1])
		}
		var ok, failed, events int64
		errors := map[string]int64{}
		for _, win := range all {
			ok, failed, events = ok+win.OK, failed+win.Failed, events+win.Events
			for code, n := range win.Errors {
				errors[code] += n
			}
			if win.FirstEvent.P99 < 975 || win.FirstEvent.P99 > 1025 || win.Total.P50 > win.Total.P90 || win.Total.P99 > 10_250_000 {
				t.Errorf("%+v", win)
			}
		}
		if ok != seconds || failed != 2*seconds || events != 2*seconds || !maps.Equal(errors, map[string]int64{Refused: seconds, "breaker_open": seconds}) {
			t.Errorf("%d ok, %d failed, %d events, %v", ok, failed, events, errors)
		}
	})
}

// TestCoarsePercentiles: a time is known to a fortieth, however long it is.
func TestCoarsePercentiles(t *testing.T) {
	var c coarse
	if s := c.spread(); s != (Spread{}) {
		t.Errorf("of nothing: %+v", s)
	}
	for us := int64(1); us < longest.Microseconds(); us = us*7/3 + 1 {
		one := coarse{}
		one.record(time.Duration(us) * time.Microsecond)
		if got := float64(one.at(.5)); got < float64(us)*0.975-0.5 || got > float64(us)*1.025+0.5 {
			t.Errorf("%d µs is %v", us, got)
		}
	}
	c.record(-time.Second)
	for range 98 {
		c.record(10 * time.Millisecond)
	}
	c.record(100 * time.Hour)
	if s := c.spread(); s.P50 < 9750 || s.P99 > 10250 || c.at(0.01) != 0 || c.at(1) < longest.Microseconds()*39/40 {
		t.Errorf("%+v", s)
	}
}
