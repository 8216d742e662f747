package broker

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// mailboxes are those that are waited for. There may be tens of thousands, so
// what is kept for each is small.
type mailboxes struct {
	prefix  string // of channels; what follows is the mailbox's key
	watched prometheus.Gauge

	mu     sync.Mutex
	all    map[string]*box // by key
	waited int             // how many of them have watchers
	// changed are boxes whose subscription is to be changed, due the keys of
	// those that are to be looked into.
	changed []*box
	due     []dueKey
	// subscribing says that somebody takes the changes.
	subscribing bool

	toChange, toLook chan struct{} // of capacity 1: there is something
}

// box is a mailbox that is waited for, or is still subscribed.
type box struct {
	channel  string
	key      string // the end of channel
	watchers *watcher
	// subscribed is what was last asked for; listed says that box is in changed.
	subscribed, listed bool
}

// watcher waits for one mailbox.
type watcher struct {
	mu   sync.Mutex // held while wake runs
	wake func(*Result)
	box  *box
	next *watcher
}

// dueKey is a mailbox in which there may be something.
type dueKey struct {
	key string
	by  string // why: a value of the label by
}

func (m *mailboxes) init(db int, watched prometheus.Gauge) {
	m.prefix = "__keyspace@" + strconv.Itoa(db) + "__:"
	m.watched = watched
	m.all = map[string]*box{}
	m.toChange, m.toLook = make(chan struct{}, 1), make(chan struct{}, 1)
}

// Watch has wake called, once, when there is something in the request's
// mailbox, with what it is: by a goroutine of the broker's, so wake may neither
// block nor call stop. The result may be shared with other watchers, and is not
// to be changed. The mailbox is being subscribed when Watch returns, and is
// looked into once it is, so nothing is missed. stop may be called at any time;
// it waits for a wake that runs, and wake is not called after it returned.
func (b *Broker) Watch(k Key, wake func(*Result)) (stop func()) {
	m := &b.mailboxes
	channel := m.prefix + k.mailbox()
	w := &watcher{wake: wake}
	m.mu.Lock()
	w.box = m.all[channel[len(m.prefix):]]
	if w.box == nil {
		w.box = &box{channel: channel, key: channel[len(m.prefix):]}
		m.all[w.box.key] = w.box
	}
	if w.box.watchers == nil {
		m.wait(1)
	}
	w.next, w.box.watchers = w.box.watchers, w
	m.change(w.box)
	m.mu.Unlock()
	return func() { m.leave(w) }
}

// Watched reports whether anybody here waits for the request.
func (b *Broker) Watched(k Key) bool {
	m := &b.mailboxes
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.all[k.mailbox()]
	return x != nil && x.watchers != nil
}

// change lists a box if its subscription is not as it should be, and drops one
// that is of no use.
func (m *mailboxes) change(x *box) {
	wanted := x.watchers != nil
	switch {
	case wanted == x.subscribed:
		if !wanted && !x.listed {
			delete(m.all, x.key)
		}
	case !m.subscribing:
		// With nobody who subscribes, none is subscribed.
	case !x.listed:
		x.listed = true
		m.changed = append(m.changed, x)
		nudge(m.toChange)
	}
}

// leave takes a watcher away. It is found among few: those of one request.
func (m *mailboxes) leave(w *watcher) {
	w.mu.Lock()
	w.wake = nil
	w.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := &w.box.watchers; *at != nil; at = &(*at).next {
		if *at == w {
			*at = w.next
			m.left(w.box)
			return
		}
	}
}

// wait counts mailboxes that are waited for.
func (m *mailboxes) wait(more int) {
	m.waited += more
	m.watched.Add(float64(more))
}

// left notes that a box has a watcher less.
func (m *mailboxes) left(x *box) {
	if x.watchers == nil {
		m.wait(-1)
		m.change(x)
	}
}

// deliver wakes all who wait for a mailbox, and reports whether there were any.
func (m *mailboxes) deliver(key string, r *Result) bool {
	m.mu.Lock()
	x := m.all[key]
	if x == nil || x.watchers == nil {
		m.mu.Unlock()
		return false
	}
	first := x.watchers
	x.watchers = nil
	m.left(x)
	m.mu.Unlock()
	for w := first; w != nil; w = w.next {
		w.mu.Lock()
		if wake := w.wake; wake != nil {
			w.wake = nil
			wake(r)
		}
		w.mu.Unlock()
	}
	return true
}

// keys appends the keys of all mailboxes that are waited for; they point into
// the boxes, so that none is copied.
func (m *mailboxes) keys(to []any) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.all {
		if x.watchers != nil {
			to = append(to, &x.key)
		}
	}
	return to
}

// isDue has a mailbox looked into.
func (m *mailboxes) isDue(key, by string) {
	m.mu.Lock()
	m.due = append(m.due, dueKey{key, by})
	m.mu.Unlock()
	nudge(m.toLook)
}

// takeDue takes what is due of mailboxes that are still waited for.
func (m *mailboxes) takeDue() []dueKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.due
	m.due = nil
	waited := due[:0]
	for _, d := range due {
		if x := m.all[d.key]; x != nil && x.watchers != nil {
			waited = append(waited, d)
		}
	}
	return waited
}

// resubscribe has all mailboxes subscribed anew, by whom takes the changes from
// now on; or by nobody.
func (m *mailboxes) resubscribe(somebody bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subscribing, m.changed = somebody, nil
	for _, x := range m.all {
		x.subscribed, x.listed = false, false
		m.change(x)
	}
}

// takeChanges takes up to so many channels to subscribe and to unsubscribe, and
// notes that they are.
func (m *mailboxes) takeChanges(most int) (subscribe, unsubscribe []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(most, len(m.changed))
	for _, x := range m.changed[:n] {
		x.listed = false
		switch wanted := x.watchers != nil; {
		case wanted && !x.subscribed:
			x.subscribed = true
			subscribe = append(subscribe, x.channel)
		case !wanted && x.subscribed:
			x.subscribed = false
			unsubscribe = append(unsubscribe, x.channel)
			delete(m.all, x.key)
		case !wanted:
			delete(m.all, x.key)
		}
	}
	if m.changed = m.changed[n:]; len(m.changed) == 0 {
		m.changed = nil // what is behind it may be large
	} else {
		nudge(m.toChange)
	}
	return subscribe, unsubscribe
}

// count returns how many mailboxes are waited for.
func (m *mailboxes) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waited
}

// forget drops all watchers; none is woken any more.
func (m *mailboxes) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.all {
		x.watchers = nil
	}
	m.wait(-m.waited)
	clear(m.all)
}

// nudge tells who listens that there is something, if it was not told yet.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
