package scrape

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Series are gauges over time. All slices are as long as At.
type Series struct {
	// At is when they were read, in seconds from the first reading on.
	At []float64 `json:"at_seconds"`
	// Missed is how many readings failed.
	Missed int             `json:"missed,omitempty"`
	Pools  map[string]Pool `json:"pools"`
	// Running are the requests that were being served, Bytes what they held in
	// memory.
	Running Gauge `json:"running"`
	Bytes   Gauge `json:"inflight_bytes"`
	// Breakers are the states of those that were not closed all the time: 0 closed,
	// 1 half open, 2 open.
	Breakers map[string]Gauge `json:"breakers,omitempty"`
}

// Pool is a pool of workers over time.
type Pool struct {
	Size  Gauge `json:"size"`
	Busy  Gauge `json:"busy"`
	Queue Gauge `json:"queue"`
}

// Gauge is one value over time. Of a long run a value stands for several readings:
// it is their mean, or of a breaker the worst. Mean and Max are of all readings.
type Gauge struct {
	Values []float64 `json:"values"`
	Mean   float64   `json:"mean"`
	Max    float64   `json:"max"`
}

// maxPoints is how many values a series has at most.
const maxPoints = 600

// patience is how long one reading may take.
const patience = 5 * time.Second

// Watch is a coordinator that is being read.
type Watch struct {
	url    string
	client *http.Client
	first  *Snapshot
	cancel context.CancelFunc
	done   sync.WaitGroup

	// of the goroutine that reads, until done
	last   *Snapshot
	missed int
	points points
}

// Begin reads a coordinator's metrics now, and then as often until Stop is called.
// An error is that of the first reading; those that fail later are counted.
func Begin(ctx context.Context, url string, every time.Duration) (*Watch, error) {
	w := &Watch{url: url, client: &http.Client{Timeout: patience, Transport: &http.Transport{}}}
	s, err := Get(ctx, w.client, url)
	if err != nil {
		w.client.CloseIdleConnections()
		return nil, err
	}
	w.first, w.last = s, s
	w.points.add(0, gauges(s))
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx)) // an interrupt ends the run, which stops us
	w.done.Go(func() { w.read(ctx, every) })
	return w, nil
}

func (w *Watch) read(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.once(ctx)
		}
	}
}

func (w *Watch) once(ctx context.Context) {
	s, err := Get(ctx, w.client, w.url)
	switch {
	case err == nil:
		w.last = s
		w.points.add(s.At.Sub(w.first.At).Seconds(), gauges(s))
	case ctx.Err() == nil:
		w.missed++
	}
}

// Stop reads a last time and returns the figures from the first reading to the last
// that was good.
func (w *Watch) Stop() *Figures {
	w.cancel()
	w.done.Wait()
	w.once(context.Background()) // bounded by the client's time-out
	w.client.CloseIdleConnections()
	f := Between(w.first, w.last)
	f.Series = w.points.series()
	f.Series.Missed = w.missed
	return f
}

// Names of gauges among the points: a kind, a slash, and a label.
const (
	kindSize    = "size/"
	kindBusy    = "busy/"
	kindQueue   = "queue/"
	kindBreaker = "breaker/"
	running     = "running"
	inflight    = "inflight_bytes"
)

// gauges returns those of a page that are watched.
func gauges(s *Snapshot) map[string]float64 {
	all := map[string]float64{running: s.Values("request_running", "")[""], inflight: s.Values("inflight_bytes", "")[""]}
	for kind, m := range map[string]struct{ name, label string }{
		kindSize: {"pool_size", "pool"}, kindBusy: {"pool_busy", "pool"}, kindQueue: {"pool_queue_depth", "pool"},
		kindBreaker: {"breaker_state", "profile"},
	} {
		for key, v := range s.Values(m.name, m.label) {
			all[kind+key] = v
		}
	}
	return all
}

// points are the values of gauges over time. Their number is bounded: when there are
// too many, each two become one, and so on.
type points struct {
	all []point
	// per is how many readings a point stands for.
	per    int
	totals point              // of all readings
	most   map[string]float64 // of all readings
}

// point stands for some readings that follow each other.
type point struct {
	readings int
	at       float64            // sum
	values   map[string]float64 // sums; of breakers the highest
}

func (p *points) add(at float64, values map[string]float64) {
	if p.per == 0 {
		p.per, p.most = 1, map[string]float64{}
	}
	if n := len(p.all); n == maxPoints && p.all[n-1].readings == p.per {
		p.thin()
	}
	one := point{readings: 1, at: at, values: values}
	for name, v := range values {
		p.most[name] = max(p.most[name], v)
	}
	p.totals.add(one)
	if n := len(p.all); n > 0 && p.all[n-1].readings < p.per {
		p.all[n-1].add(one)
		return
	}
	p.all = append(p.all, point{readings: 1, at: at, values: maps.Clone(values)})
}

func (p *points) thin() {
	p.per *= 2
	for i := 0; i+1 < len(p.all); i += 2 {
		p.all[i].add(p.all[i+1])
		p.all[i/2] = p.all[i]
	}
	clear(p.all[len(p.all)/2:])
	p.all = p.all[:len(p.all)/2]
}

func (p *point) add(o point) {
	if p.values == nil {
		p.values = map[string]float64{}
	}
	p.readings += o.readings
	p.at += o.at
	for name, v := range o.values {
		if strings.HasPrefix(name, kindBreaker) {
			p.values[name] = max(p.values[name], v)
		} else {
			p.values[name] += v
		}
	}
}

func (p *points) series() *Series {
	s := &Series{Pools: map[string]Pool{}, Breakers: map[string]Gauge{}, Running: p.gauge(running), Bytes: p.gauge(inflight)}
	for _, pt := range p.all {
		s.At = append(s.At, pt.at/float64(pt.readings))
	}
	for name := range p.totals.values {
		kind, label, _ := strings.Cut(name, "/")
		switch kind + "/" {
		case kindSize:
			s.Pools[label] = Pool{Size: p.gauge(name), Busy: p.gauge(kindBusy + label), Queue: p.gauge(kindQueue + label)}
		case kindBreaker:
			if p.most[name] > 0 {
				s.Breakers[label] = p.gauge(name)
			}
		}
	}
	return s
}

func (p *points) gauge(name string) Gauge {
	g := Gauge{Max: p.most[name]}
	sum := 0.0
	for _, pt := range p.all {
		v := pt.values[name]
		if !strings.HasPrefix(name, kindBreaker) {
			sum += v
			v /= float64(pt.readings)
		} else {
			sum += v * float64(pt.readings)
		}
		g.Values = append(g.Values, v)
	}
	if p.totals.readings > 0 {
		g.Mean = sum / float64(p.totals.readings)
	}
	return g
}
