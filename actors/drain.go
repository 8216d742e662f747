package actors

import (
	"math"
	"strconv"
	"time"
)

// drain measures how fast what is full gets room again: how many places of a
// pool were given back, or requests ended, per second lately. Its clock goes only
// while the thing is full. Otherwise it would measure how little was asked for,
// and a queue that forms after a quiet hour would seem to take an hour.
//
// Time and what happened in it are both forgotten exponentially, so that the
// measure is right from the start and follows a change within some ten seconds.
type drain struct {
	since time.Time // up to when the time is counted; zero while the clock stands
	time  float64   // in seconds
	gone  float64
	seen  int // not forgotten
}

// memory is the time constant of drains, in seconds.
const memory = 10

// start lets the clock go, if it does not.
func (d *drain) start() {
	if d.since.IsZero() {
		d.since = time.Now()
	}
}

// stop stops the clock: there is room because one has gone, which was counted at
// this moment.
func (d *drain) stop() { d.since = time.Time{} }

// count notes that one has gone, if the clock goes.
func (d *drain) count() {
	if !d.since.IsZero() {
		d.pass(time.Now())
		d.gone++
		d.seen++
	}
}

// pass counts the time until now.
func (d *drain) pass(now time.Time) {
	dt := now.Sub(d.since).Seconds()
	keep := math.Exp(-dt / memory)
	d.time = d.time*keep + memory*(1-keep)
	d.gone *= keep
	d.since = now
}

// rate returns how many go per second, or 0 if fewer than enough have been seen
// to tell.
func (d *drain) rate(enough int) float64 {
	if !d.since.IsZero() {
		d.pass(time.Now())
	}
	if d.seen < max(1, enough) || d.time <= 0 {
		return 0
	}
	return d.gone / d.time
}

// The bounds of Retry-After, in seconds: below, clients would only be refused
// again; beyond, the measure says nothing.
const minRetry, maxRetry = 1, 60

// retryAfter returns the Retry-After for one that has to wait until n have gone,
// minRetry if the rate is not known.
func retryAfter(n int, rate float64) string {
	if rate <= 0 {
		return strconv.Itoa(minRetry)
	}
	return strconv.Itoa(int(min(max(math.Ceil(float64(n)/rate), minRetry), maxRetry)))
}
