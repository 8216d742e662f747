package plan

import (
	"fmt"
	"math"
	"strings"
)

// pool is a pool and how it got its size.
type pool struct {
	name        string
	size, queue int
	// each is the seconds of its workers that a request takes, busy how many of them
	// are on average in one replica.
	each, busy float64
	why        string
}

// The fewest places and the shortest queue that are planned: fewer save nothing, and
// a few requests at once are no overload.
const (
	leastSize  = 16
	leastQueue = 64
)

// sizePools sizes the pools that the pipeline uses, in the order of its steps.
func (p *Plan) sizePools() {
	for _, t := range p.times {
		tasks := p.load.tasks(t.work)
		if t.work == probe || tasks <= 0 { // a probe has decode's place
			continue
		}
		each, together := tasks*t.seconds, 1.0
		what := seconds(t.seconds)
		if tasks != 1 {
			what = fmt.Sprintf("%s × %s", short(tasks), what)
		}
		switch t.work {
		case media, encode:
			together = p.load.perRequest
		case decode:
			each, what = p.stay.place, p.stay.String()
		}
		pl := pool{name: t.work, each: each, busy: p.rate() * each}
		var room string
		pl.size, room = p.room(pl.busy, together, leastSize)
		pl.queue = max(leastQueue, int(math.Ceil(p.rate()*tasks*p.question.Wait.Seconds()-1e-9)))
		pl.why = fmt.Sprintf("%s: %s/s × %s = %s busy on average%s", pl.name, short(p.rate()), what, short(pl.busy), room)
		p.pools = append(p.pools, pl)
	}
}

// pool returns the pool of that name, if the pipeline uses it.
func (p *Plan) pool(name string) (pl pool, ok bool) {
	for _, pl := range p.pools {
		if pl.name == name {
			return pl, true
		}
	}
	return pool{}, false
}

// String says what a place of decode is taken for.
func (s stay) String() string {
	var b strings.Builder
	for i, pt := range s.parts {
		if i > 0 {
			b.WriteString(" + ")
		}
		if pt.share != 1 {
			b.WriteString(short(pt.share) + " × ")
		}
		fmt.Fprintf(&b, "%s of %s", seconds(pt.seconds), pt.work)
	}
	if len(s.parts) > 1 {
		return "(" + b.String() + ")"
	}
	return b.String()
}

// seconds writes a time in a unit that suits it.
func seconds(s float64) string {
	if s < 1 {
		return short(s*1000) + " ms"
	}
	return short(s) + " s"
}

// room returns how many places so many busy ones need, and how that comes about. How
// many are busy differs by chance, by the root of their mean; more if they come
// several together.
func (p *Plan) room(busy, together float64, least int) (size int, why string) {
	q := p.question
	of := short(busy)
	if together > 1 {
		of = fmt.Sprintf("(%s × %s)", of, short(together))
		why = fmt.Sprintf(" (%s come together)", short(together))
	}
	high := busy + q.Sigmas*math.Sqrt(busy*together)
	needed := high * q.Margin
	size = int(math.Ceil(needed - 1e-9))
	why += fmt.Sprintf("; + %s·√%s = %s; × %s = %d", short(q.Sigmas), of, short(high), short(q.Margin), size)
	if size < least {
		return least, why + fmt.Sprintf("; not fewer than %d", least)
	}
	return size, why
}

// inflight is how many requests may be in the house.
type inflight struct {
	requests int
	busy     float64
	why      string
}

// sizeInflight leaves room for all that are worked on, and for those that wait for
// decode. 0 in the configuration would be the size and the queue of decode alone, in
// which those that are rendered or encoded have no part.
func (p *Plan) sizeInflight() {
	f := &p.inflight
	f.busy = p.rate() * p.stay.whole
	size, room := p.room(f.busy, 1, leastSize)
	d, _ := p.pool(decode)
	f.requests = max(size, d.size) + d.queue
	f.why = fmt.Sprintf("requests: %s/s × %s of all phases = %s on average%s; + %d in decode's queue", short(p.rate()),
		seconds(p.stay.whole), short(f.busy), room, d.queue)
	if size < d.size {
		f.why += fmt.Sprintf(", and not fewer than decode's %d + %d", d.size, d.queue)
	}
}
