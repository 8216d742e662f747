package wire

import (
	"errors"
	"strconv"
)

// Errors of an answer that cannot be merged with others, for the log.
var (
	errNotAnswer = errors.New("it is no JSON object with choices")
	errNoIndex   = errors.New("a choice of it has no index")
)

// Names are what is the same in all events of one answer: its id and what goes
// with it, as JSON text. Empty ones are not known.
type Names struct{ id, created, model []byte }

// Known reports whether an answer has been seen.
func (n *Names) Known() bool { return n.id != nil }

// NamesOf copies the names of an answer, which must be valid JSON.
func NamesOf(answer []byte) Names {
	n := Names{id: []byte{}}
	intoObject(answer, skipSpace(answer, 0), func(name []byte, at int) int {
		end := skipValue(answer, at)
		if to := n.of(name); to != nil {
			*to = append([]byte{}, answer[at:end]...)
		}
		return end
	})
	return n
}

// of returns the place of a member among the names, or nil.
func (n *Names) of(name []byte) *[]byte {
	switch {
	case NameIs(name, "id"):
		return &n.id
	case NameIs(name, "created"):
		return &n.created
	case NameIs(name, "model"):
		return &n.model
	}
	return nil
}

// Event is what there is to know of one event of a stream before it is merged with
// others.
type Event struct {
	// Error is the value of its member error, or nil.
	Error []byte
	// Usage is that of the whole answer, in an event without choices, or nil.
	Usage []byte
}

// Refused reports whether the error of an event is the request's, and not the
// worker's.
func (e *Event) Refused() bool { return e.Error != nil && !isServerError(e.Error) }

// ReadEvent checks the data of an event of a completions stream.
func ReadEvent(data []byte) (e Event, err error) {
	if Valid(data) != nil {
		return e, errNotAnswer
	}
	var usage, choices []byte
	if !EachMember(data, func(name, value []byte) bool {
		switch {
		case NameIs(name, "error"):
			e.Error = value
		case NameIs(name, "choices"):
			choices = value
		case NameIs(name, "usage"):
			usage = value
		}
		return true
	}) {
		return e, errNotAnswer
	}
	switch {
	case !IsNull(e.Error):
		return e, nil
	case len(choices) == 0 || choices[0] != '[':
		return e, errNotAnswer
	case emptyArray(choices) && IsObject(usage):
		e.Usage = usage
	}
	e.Error = nil
	return e, nil
}

// AppendEvent appends the data of an event that ReadEvent has passed: with the names
// of the first, and each choice's index raised by base.
func (n *Names) AppendEvent(to, data []byte, base int) ([]byte, error) {
	done, bad := 0, false
	put := func(from, end int) { to, done = append(to, data[done:from]...), end }
	intoObject(data, skipSpace(data, 0), func(name []byte, at int) int {
		end := skipValue(data, at)
		if NameIs(name, "choices") {
			bad = !eachIndex(data[:end], at, func(from, end, index int) {
				put(from, end)
				to = strconv.AppendInt(to, int64(base+index), 10)
			}) || bad
		} else if ours := n.of(name); ours != nil && len(*ours) > 0 {
			put(at, end)
			to = append(to, *ours...)
		}
		return end
	})
	if bad {
		return to, errNoIndex
	}
	return append(to, data[done:]...), nil
}

// AppendUsage appends an event like data, which has a usage and no choices, with
// another usage and the names of the first.
func (n *Names) AppendUsage(to, data []byte, usage *Tally) []byte {
	done := 0
	intoObject(data, skipSpace(data, 0), func(name []byte, at int) int {
		end := skipValue(data, at)
		ours := n.of(name)
		switch isUsage := NameIs(name, "usage"); {
		case isUsage:
			to = usage.Append(append(to, data[done:at]...))
			done = end
		case ours != nil && len(*ours) > 0:
			to = append(append(to, data[done:at]...), *ours...)
			done = end
		}
		return end
	})
	return append(to, data[done:]...)
}

// eachIndex calls f for the index of each choice of an array: where it stands and
// what it is. It reports false if one has none.
func eachIndex(text []byte, at int, f func(from, end, index int)) bool {
	at = skipSpace(text, at+1)
	for at < len(text) && text[at] == '{' {
		from, to := 0, 0
		at = intoObject(text, at, func(name []byte, at int) int {
			end := skipValue(text, at)
			if NameIs(name, "index") {
				from, to = at, end
			}
			return end
		})
		index, err := strconv.Atoi(string(text[from:to]))
		if err != nil || index < 0 {
			return false
		}
		f(from, to, index)
		if at = skipSpace(text, at); at < len(text) && text[at] == ',' {
			at = skipSpace(text, at+1)
		}
	}
	return at < len(text) && text[at] == ']'
}

// CheckMergeable checks a whole answer of a completions request: whether it can be
// merged with others.
func CheckMergeable(answer []byte) error {
	if Valid(answer) != nil || !IsObject(trim(answer)) {
		return errNotAnswer
	}
	choices := Lookup(answer, "choices")
	if len(choices) == 0 || choices[0] != '[' {
		return errNotAnswer
	}
	if !eachIndex(choices, 0, func(_, _, _ int) {}) {
		return errNoIndex
	}
	return nil
}

// MergeAnswers makes one answer of those to the prompts of a batch, in their order,
// which CheckMergeable has passed: it is the first, with the choices of all and the
// sum of their usages. Each prompt has so many choices: the index of one is counted
// through over all prompts. The answers' text is shared.
func MergeAnswers(answers [][]byte, choices int) Text {
	first, done := answers[0], 0
	var t Text
	var usage Tally
	for _, a := range answers {
		usage.Add(Lookup(a, "usage"))
	}
	intoObject(first, skipSpace(first, 0), func(name []byte, at int) int {
		end := skipValue(first, at)
		switch {
		case NameIs(name, "choices"):
			t = appendChoices(append(t, first[done:at]), answers, choices)
			done = end
		case NameIs(name, "usage") && usage.Counted():
			t = append(t, first[done:at], usage.Append(nil))
			done = end
		}
		return end
	})
	return append(t, first[done:])
}

// appendChoices appends the array of the choices of all answers.
func appendChoices(t Text, answers [][]byte, choices int) Text {
	t = append(t, openBracket)
	some := false
	for i, a := range answers {
		array := Lookup(a, "choices")
		if emptyArray(array) {
			continue
		}
		if some {
			t = append(t, comma)
		}
		some = true
		done := 1 // behind the bracket
		eachIndex(array, 0, func(from, end, index int) {
			t = append(t, array[done:from], strconv.AppendInt(nil, int64(i*choices+index), 10))
			done = end
		})
		t = append(t, array[done:len(array)-1])
	}
	return append(t, closeBracket)
}

var openBracket, closeBracket = []byte("["), []byte("]")
