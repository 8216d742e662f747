package load

import (
	"bytes"
	"encoding/json"
)

// events reads a stream of server-sent events as it comes in pieces. The zero
// value is the beginning of one. It keeps the beginnings of lines only.
type events struct {
	count int64  // events that have ended
	done  bool   // the last event of all was there
	code  string // of an event that is an error
	line  []byte // the beginning of a line that has not ended
	empty bool   // nothing but a line break since the last event; the zero value says no
}

// maxLine is how much of a line is looked at.
const maxLine = 4 << 10

// reset begins another stream, with the memory of the last.
func (e *events) reset() { *e = events{line: e.line[:0]} }

// write reads a piece and returns how many events ended in it.
func (e *events) write(p []byte) (ended int64) {
	before := e.count
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			e.keep(p)
			break
		}
		line := p[:end]
		if len(e.line) > 0 {
			e.keep(line)
			line = e.line
		}
		e.ended(bytes.TrimSuffix(line, []byte("\r")))
		e.line = e.line[:0]
		p = p[end+1:]
	}
	return e.count - before
}

func (e *events) keep(p []byte) {
	e.line = append(e.line, p[:min(len(p), maxLine-len(e.line))]...)
}

// ended reads a line. An event ends with an empty one.
func (e *events) ended(line []byte) {
	if len(line) == 0 {
		if !e.empty {
			e.count++
		}
		e.empty = true
		return
	}
	e.empty = false
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return
	}
	data = bytes.TrimLeft(data, " ")
	switch {
	case bytes.Equal(data, []byte("[DONE]")):
		e.done = true
	case bytes.HasPrefix(data, []byte(`{"error":`)):
		e.code = errorCode(data)
	}
}

// NoCode is what an error without a code is counted as.
const NoCode = "none"

// errorCode returns the code of an error object. Workers' codes are numbers.
func errorCode(text []byte) string {
	var o struct {
		Error struct {
			Code any `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &o) == nil {
		switch code := o.Error.Code.(type) {
		case string:
			if code != "" {
				return code
			}
		case float64:
			number, _ := json.Marshal(code)
			return string(number)
		}
	}
	return NoCode
}
