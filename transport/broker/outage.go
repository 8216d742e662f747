package broker

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// outages has each outage logged once, when it begins and when it is over. One
// is that of Redis as a whole; each command that Redis refuses has one of its
// own, and so has the subscription, whose connection may break alone.
type outages struct {
	log *slog.Logger
	// calm is how long no command may have failed for an outage to be over, so
	// that a Redis that answers now and then does not fill the log.
	calm time.Duration

	mu    sync.Mutex
	open  map[command]time.Time // when it failed last
	count atomic.Int32          // of open, so that a command that worked need not look

	mute atomic.Bool // the latest command was not answered
}

// whole is the key of Redis' own outage.
const whole command = ""

// failed notes a command that failed.
func (o *outages) failed(c command, e *Error) {
	key := c
	switch {
	case e.Kind == BreakerOpen || e.Kind == Canceled || e.Kind == Closed:
		return
	case c == cmdSubscribe:
	case e.Kind.silent():
		key = whole
		o.mute.Store(true)
	default:
		o.answered(whole)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.open[key]
	o.open[key] = time.Now()
	if known {
		return
	}
	o.count.Add(1)
	switch key {
	case whole:
		o.log.Warn("redis does not answer", "error", e)
	case cmdSubscribe:
		o.log.Warn("redis' notifications ended: results are polled for", "error", e)
	default:
		o.log.Warn("redis refuses a command", "command", string(c), "error", e)
	}
}

// worked notes a command that did not fail.
func (o *outages) worked(c command) { o.answered(whole, c) }

func (o *outages) answered(keys ...command) {
	if o.mute.Load() {
		o.mute.Store(false)
	}
	if o.count.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		last, known := o.open[key]
		if !known || time.Since(last) < o.calm {
			continue
		}
		delete(o.open, key)
		o.count.Add(-1)
		switch key {
		case whole:
			o.log.Info("redis answers again")
		case cmdSubscribe:
			o.log.Info("redis' notifications arrive again")
		default:
			o.log.Info("redis takes a command again", "command", string(key))
		}
	}
}

// missing reports whether Redis' own outage is not over, or not for long enough.
func (o *outages) missing() bool {
	if o.count.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, is := o.open[whole]
	return is
}

// silent reports whether the latest command was not answered.
func (o *outages) silent() bool { return o.mute.Load() }
