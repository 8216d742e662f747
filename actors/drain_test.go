package actors

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// every has one go every so often.
func (d *drain) every(dt time.Duration, n int) {
	for range n {
		time.Sleep(dt)
		d.count()
	}
}

func (d *drain) want(t *testing.T, rate, within float64) {
	t.Helper()
	if got := d.rate(1); math.Abs(got-rate) > within {
		t.Errorf("%v per second, want %v", got, rate)
	}
}

func TestDrainRate(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, d *drain){
		"not known": func(t *testing.T, d *drain) {
			d.want(t, 0, 0)
			d.count() // the clock stands
			d.start()
			time.Sleep(time.Minute)
			d.want(t, 0, 0)
		},
		"known from the first": func(t *testing.T, d *drain) {
			d.start()
			d.every(time.Second/2, 1)
			d.want(t, 2, .06)
			if got := d.rate(2); got != 0 {
				t.Errorf("%v per second, known too early", got)
			}
		},
		"follows a change": func(t *testing.T, d *drain) {
			d.start()
			d.every(time.Second/10, 1000)
			d.want(t, 10, .1)
			d.every(time.Second, 40)
			d.want(t, 1, .3)
			time.Sleep(time.Minute)
			d.want(t, 0, .01)
		},
		"does not count the time in which there is room": func(t *testing.T, d *drain) {
			d.start()
			d.every(time.Second/4, 40)
			d.stop()
			time.Sleep(time.Hour)
			d.want(t, 4, .1)
			d.count()
			d.start()
			d.want(t, 4, .1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, &drain{}) })
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for _, tc := range []struct {
		n    int
		rate float64
		want string
	}{{5, 0, "1"}, {0, 3, "1"}, {5, 2, "3"}, {4, 2, "2"}, {1000, 2, "60"}, {1, 1e-300, "60"}, {1 << 60, 1e-300, "60"}} {
		if got := retryAfter(tc.n, tc.rate); got != tc.want {
			t.Errorf("%d at %v per second: %s, want %s", tc.n, tc.rate, got, tc.want)
		}
	}
}
