// Package monitor keeps what operators want to see of the requests of a
// coordinator: those that run, the last that have ended, and how the last minutes
// went. Its memory is bounded, and nothing that a request says is in it.
package monitor

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/transport/server"
)

// Monitor is told of each request. Its methods may be called by many goroutines.
type Monitor struct {
	started time.Time

	mu      sync.Mutex
	running map[string]*server.Running // mostKnown of them
	unknown int                        // that run and are not among them
	totals  Totals
	ended   [kept]server.Record // a ring
	n       uint64              // that have ended
	phases  map[string]*samples
	chart   chart
}

// kept is how many requests that have ended are shown, mostKnown how many running
// ones are remembered: more are only counted.
const (
	kept      = 200
	mostKnown = 10_000
)

// New makes a monitor.
func New() *Monitor {
	return &Monitor{started: time.Now(), running: map[string]*server.Running{}, phases: map[string]*samples{}}
}

// Uptime returns for how long the monitor has been there.
func (m *Monitor) Uptime() time.Duration { return time.Since(m.started) }

// Began notes a request, which must not be changed any more. What it returns is to
// be told of its end.
func (m *Monitor) Began(r *server.Running) func(server.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.running) < mostKnown {
		m.running[r.Serial] = r
	} else {
		m.unknown++
	}
	return m.finished
}

func (m *Monitor) finished(rec server.Record) {
	now := rec.Received.Add(rec.Total)
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.running[rec.Serial]; known {
		delete(m.running, rec.Serial)
	} else {
		m.unknown--
	}
	m.totals.add(outcome(&rec))
	m.ended[m.n%kept] = rec
	m.n++
	for _, s := range rec.Steps {
		of := m.phases[s.Phase]
		if of == nil {
			of = &samples{}
			m.phases[s.Phase] = of
		}
		of.add(s.Ended, s.Ended.Sub(s.Began), s.Code != "" && !rec.Gone)
	}
	m.chart.add(now, &rec)
}

// Filter chooses requests. "" is any; Path "none" is those that reached no worker.
type Filter struct{ ID, Model, Path, Outcome string }

// matches looks for a part of ids and names, and for the whole of the others.
func (f *Filter) matches(v *View) bool {
	in := func(part string, texts ...string) bool {
		return part == "" || slices.ContainsFunc(texts, func(t string) bool {
			return strings.Contains(strings.ToLower(t), strings.ToLower(part))
		})
	}
	path := cmp.Or(v.Path, "none")
	return in(f.ID, v.Serial, v.RequestID, v.TraceID) && in(f.Model, v.Model) &&
		(f.Path == "" || f.Path == path) && (f.Outcome == "" || f.Outcome == v.Outcome)
}

// Requests returns at most so many requests that the filter chooses: those that
// run, then those that have ended, the newest first.
func (m *Monitor) Requests(f Filter, most int) []View {
	update, _ := m.Updates(0)
	ended := map[string]bool{}
	for i := range update.Finished {
		ended[update.Finished[i].Serial] = true
	}
	running := slices.DeleteFunc(update.Running, func(v View) bool { return ended[v.Serial] })
	all := []View{}
	for _, v := range append(running, update.Finished...) {
		if len(all) < most && f.matches(&v) {
			all = append(all, v)
		}
	}
	return all
}

// Request returns the whole view of one request, if it is running or was kept.
func (m *Monitor) Request(serial string) (View, bool) {
	m.mu.Lock()
	r, ok := m.running[serial]
	var rec *server.Record
	for i := range m.ended {
		if m.ended[i].Serial == serial && serial != "" {
			found := m.ended[i]
			rec, r, ok = &found, &found.Running, true
		}
	}
	m.mu.Unlock()
	if !ok {
		return View{}, false
	}
	return view(r, rec, true), true
}

func view(r *server.Running, rec *server.Record, whole bool) View {
	if rec != nil {
		return viewOf(r, rec, &rec.Entry, time.Time{}, whole)
	}
	e := r.Journal.Entry()
	return viewOf(r, nil, &e, time.Now(), whole)
}

// mostRunning is how many running requests are shown one by one.
const mostRunning = 500

// runningNow returns views of the running requests, the newest first.
func (m *Monitor) runningNow() []View {
	all, _ := m.known()
	slices.SortFunc(all, func(a, b *server.Running) int { return b.Received.Compare(a.Received) })
	views := make([]View, min(len(all), mostRunning))
	for i := range views {
		views[i] = view(all[i], nil, false)
	}
	return views
}

// known returns the running requests that are remembered, in no order, and how
// many run.
func (m *Monitor) known() ([]*server.Running, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*server.Running, 0, len(m.running))
	for _, r := range m.running {
		all = append(all, r)
	}
	return all, len(all) + m.unknown
}

// since returns views of requests that have ended since so many had, the newest
// first, and how many have now.
func (m *Monitor) since(n uint64) ([]View, uint64) {
	m.mu.Lock()
	now := m.n
	var all []server.Record
	for i := now; i > n && now-i < kept; i-- {
		all = append(all, m.ended[(i-1)%kept])
	}
	m.mu.Unlock()
	views := make([]View, len(all))
	for i := range all {
		views[i] = view(&all[i].Running, &all[i], false)
	}
	return views, now
}

// Update is what has changed. A request that has just ended may be in both.
type Update struct {
	Running  []View `json:"running"`
	Finished []View `json:"finished"` // the newest first
}

// Updates returns what has changed since a mark, which is 0 at first, and a new
// mark.
func (m *Monitor) Updates(mark uint64) (Update, uint64) {
	// In this order: one that ends in between is in both, not in neither.
	running := m.runningNow()
	finished, mark := m.since(mark)
	return Update{running, finished}, mark
}

// Fill adds to a status what the monitor knows: of phases how many requests are in
// them and how the last minute went, totals, and the chart.
func (m *Monitor) Fill(s *Status) {
	all, running := m.known()
	in := map[string]int{}
	for i := range all {
		in[all[i].Journal.Phase()]++
	}
	s.Running, s.NotShown = running, max(0, running-mostRunning)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range s.Pipeline {
		p := &s.Pipeline[i]
		p.Running = in[p.Name]
		if of := m.phases[p.Name]; of != nil {
			p.P50, p.P99, p.Errors = of.last(now)
		}
	}
	s.Uptime = m.Uptime().Seconds()
	s.Totals, s.Chart = m.totals, m.chart.points(now)
}
