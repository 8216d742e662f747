package plan

import (
	"fmt"
	"math"
)

// workTime is how long work on a request takes (of media and encode: on one image),
// without waiting in queues.
type workTime struct {
	work    string
	seconds float64
	from    string // given, measured or assumed
	note    string
}

// Assumptions about times, for those that are neither given nor measured: of a model
// of some ten billion parameters on a current GPU. They are to be replaced.
const (
	assumedDownload     = 0.2
	assumedRender       = 0.005
	assumedProbe        = 0.01
	assumedEncode       = 0.1
	assumedPrefillPer1k = 0.15
	assumedPrefillLeast = 0.03
	assumedDecodePer    = 0.02
)

// time finds how long work takes.
func (p *Plan) time(work string) workTime {
	if t, ok := p.question.Times[work]; ok {
		return workTime{work, t.Seconds(), given, "by -times"}
	}
	if t, ok := p.measured.time(work, p.takesPlace(work)); ok {
		return p.scaled(t)
	}
	t := workTime{work: work, from: assumed}
	switch work {
	case media:
		t.seconds, t.note = assumedDownload, "for each image"
	case render:
		t.seconds = assumedRender
	case probe:
		t.seconds, t.note = assumedProbe, "to hear that the prompt is not cached"
	case encode:
		t.seconds, t.note = assumedEncode, "for each image"
	case prefill:
		t.seconds = assumedPrefillLeast + assumedPrefillPer1k*p.load.prompt.value/1000
		t.note = fmt.Sprintf("%g s, and %g s for each 1000 tokens of the prompt", assumedPrefillLeast, assumedPrefillPer1k)
	case decode:
		t.seconds = assumedDecodePer * p.load.output.value
		t.note = fmt.Sprintf("%g s for each token of the answer", assumedDecodePer)
	}
	return t
}

// takesPlace reports whether the step of work is where a request waits for its
// decode place, so that the step takes longer than the work: unless it is prefill,
// of which legs are measured. The times of earlier steps are there.
func (p *Plan) takesPlace(work string) bool {
	return work == probe || work == decode && !p.has(probe) && !p.has(prefill)
}

// scaled makes of a time that was measured the one of requests of another length: in
// proportion, for the part that does not depend on it is not known.
func (p *Plan) scaled(t workTime) workTime {
	var asked, seen float64
	switch t.work {
	case prefill:
		asked, seen = p.load.prompt.value, p.measured.prompt()
	case decode:
		asked, seen = p.load.output.value, p.measured.output()
		if math.IsNaN(seen) {
			t.note += "; of answers whose length is not known, so it is taken as it is"
		}
	}
	const alike = 0.02
	if asked > 0 && seen > 0 && math.Abs(asked/seen-1) > alike {
		t.note += fmt.Sprintf(", of %s tokens: × %s for %s", short(seen), short(asked/seen), short(asked))
		t.seconds *= asked / seen
	}
	return t
}

// stay is how long a request is in the house, and how long it has a place of decode.
type stay struct {
	// whole and place are in seconds; parts say what place is made of.
	whole, place float64
	parts        []part
}

// part is what work adds to a request's stay: its time, of so great a part of all
// requests.
type part struct {
	work    string
	seconds float64
	share   float64
}

// stayOf adds up the work on a request. Its place of decode is taken before the first
// prefill or probe, and kept to the end: no KV waits for a place.
func (p *Plan) stayOf() (s stay) {
	placed := false
	for _, t := range p.times {
		share := 1.0
		switch t.work {
		case media, encode: // images of one request are worked on at once
			share = min(1, p.load.tasks(t.work)/p.load.perRequest)
		case prefill:
			share = p.load.tasks(prefill)
		case decode:
			if p.has(probe) && p.time(probe).from == measured {
				share = 1 - p.load.cached.value // the time of a probe that served is in the probe's
			}
		}
		s.whole += share * t.seconds
		if placed = placed || t.work == probe || t.work == prefill || t.work == decode; placed {
			s.place += share * t.seconds
			s.parts = append(s.parts, part{t.work, t.seconds, share})
		}
	}
	return s
}
