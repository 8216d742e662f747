package load

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestOpenLoopKeepsItsSchedule: as many requests begin as should, evenly,
// however slow the server is.
func TestOpenLoopKeepsItsSchedule(t *testing.T) {
	for _, tt := range []struct {
		rate     float64
		count    int64
		duration time.Duration
		want     int64
	}{
		{rate: 100, count: 1e6, duration: 3 * time.Second, want: 300},
		{rate: 100, count: 50, duration: 3 * time.Second, want: 50},
		{rate: 3, count: 1e6, duration: time.Second, want: 3},
		{rate: 0.5, count: 1e6, duration: time.Second, want: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var offBeat atomic.Int64
			o := Options{Target: Target{URL: "http://server.test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				beats := time.Since(began).Seconds() * tt.rate
				if off := beats - float64(int64(beats+0.5)); off > 1e-6*tt.rate || off < -1e-6*tt.rate {
					offBeat.Add(1)
				}
				return after(r, 5*time.Second)
			})}, Rate: tt.rate, Count: tt.count, Duration: tt.duration, Grace: 10 * time.Second}
			r := mustRun(t, o)
			if c := r.Counts; c.Begun != tt.want || c.OK != tt.want || c.Missed != 0 || offBeat.Load() != 0 {
				t.Errorf("%v/s: %+v, %d off the beat", tt.rate, c, offBeat.Load())
			}
			if r.Delay.Max != 0 || r.Total.P50 < 4_995_000 || r.Total.Max > 5_005_000 {
				t.Errorf("%v/s: %+v %+v", tt.rate, r.Delay, r.Total)
			}
		})
	}
}

// TestMissedArrivalsAreCounted: with as many in flight as may be, none begins.
func TestMissedArrivalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Target: Target{URL: "http://server.test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return after(r, 950*time.Millisecond)
		})}, Rate: 10, MaxInFlight: 3, Count: 1000, Duration: 2 * time.Second, Grace: time.Minute}
		r := mustRun(t, o) // of the ten of each second the first three begin
		if c := r.Counts; c.Begun != 6 || c.OK != 6 || c.Missed != 14 {
			t.Errorf("%+v", c)
		}
	})
}

// TestOpenLoopOnLoopback: requests that cannot be served in time are late, not
// left out.
func TestOpenLoopOnLoopback(t *testing.T) {
	o := Options{Target: serve(t, whole), Rate: 1e6, MaxInFlight: 1000, Count: 500, Duration: time.Minute, Grace: time.Minute}
	r := mustRun(t, o)
	if c := r.Counts; c.Begun != 500 || c.OK != 500 || c.Missed != 0 {
		t.Errorf("%+v %v", c, r.Transport)
	}
}
