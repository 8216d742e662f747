package phases

import (
	"maps"
	"net/http"
	"slices"
)

// forwarding are the names, in canonical form, of headers that the answers of a
// request's legs hand on to its later legs: by them an endpoint picker has one
// revision of the workers serve all of a request.
type forwarding []string

// said returns the headers of an answer if one that is forwarded is among them,
// else nil.
func (f forwarding) said(answer http.Header) http.Header {
	for _, name := range f {
		if len(answer[name]) > 0 {
			return answer
		}
	}
	return nil
}

// forwarded is what the answers of a request have said, by step, in the order of
// the steps.
type forwarded struct {
	came  http.Header // what all legs carry besides
	steps []spoken
}

// spoken is what the answers to one step agreed on.
type spoken struct {
	step   string
	header http.Header
}

// hear has the request's later legs carry what the answers to a step say: of each
// header what most of them do, or what the first one does if that is not decided.
// A step that says something else than those before it is believed. Answers that
// said nothing are nil.
func (f forwarding) hear(r *Request, step string, answers ...http.Header) {
	r.unhear(step)
	heard := http.Header(nil)
	for _, name := range f {
		if values := mostSaid(answers, name); len(values) > 0 {
			if heard == nil {
				heard = http.Header{}
			}
			heard[name] = values
		}
	}
	if heard == nil {
		return
	}
	if r.forwarded == nil {
		r.forwarded = &forwarded{came: r.Header}
	}
	r.forwarded.steps = append(r.forwarded.steps, spoken{step, heard})
	r.carry()
}

// unhear forgets what the answers to a step, and to those after it, have said: it
// is run again.
func (r *Request) unhear(step string) {
	if r.forwarded == nil {
		return
	}
	before := len(r.forwarded.steps)
	r.forwarded.steps = slices.DeleteFunc(r.forwarded.steps, func(s spoken) bool { return rank(s.step) >= rank(step) })
	if len(r.forwarded.steps) < before {
		r.carry()
	}
}

// rank is the place of a step among those whose answers are heard.
func rank(step string) int { return slices.Index([]string{stepRender, stepEncode, stepPrefill}, step) }

// carry makes the headers of later legs. Those that are under way keep theirs.
func (r *Request) carry() {
	h := maps.Clone(r.forwarded.came)
	if h == nil {
		h = http.Header{}
	}
	for _, s := range r.forwarded.steps {
		maps.Copy(h, s.header)
	}
	r.Header = h
}

// mostSaid returns the values that most answers have under a name; of those that
// are said equally often the first.
func mostSaid(answers []http.Header, name string) (most []string) {
	best := 0
	for i, a := range answers {
		values := a[name]
		if len(values) == 0 {
			continue
		}
		n := 0
		for _, other := range answers[i:] {
			if slices.Equal(other[name], values) {
				n++
			}
		}
		if n > best {
			best, most = n, values
		}
	}
	return most
}
