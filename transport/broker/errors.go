package broker

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Kind is how a command failed: a label of figures, and for callers to tell
// failures apart.
type Kind string

// The kinds of failures.
const (
	Timeout     Kind = "timeout"
	Connection  Kind = "connection"
	Loading     Kind = "loading" // Redis is up, and serves nobody yet or now
	BreakerOpen Kind = "breaker_open"
	ReadOnly    Kind = "read_only"
	OutOfMemory Kind = "out_of_memory"
	Denied      Kind = "denied" // credentials or permissions
	WrongType   Kind = "wrong_type"
	Refused     Kind = "refused" // any other error that Redis answers
	Canceled    Kind = "canceled"
	Closed      Kind = "closed"
)

// silent reports whether a failure says that Redis does not work, rather than
// that it does not want this command.
func (k Kind) silent() bool { return k == Timeout || k == Connection || k == Loading }

// Error is a command that failed. Its text never has what the command was
// about, nor credentials.
type Error struct {
	Command string
	Kind    Kind
	cause   error
	// code is the first word of what Redis answered. What follows may repeat the
	// command.
	code string
}

// Error implements error.
func (e *Error) Error() string {
	text := "redis: " + e.Command + ": " + strings.ReplaceAll(string(e.Kind), "_", " ")
	switch {
	case e.code != "":
		return text + " (" + e.code + ")"
	case e.cause != nil && (e.Kind == Connection || e.Kind == Refused):
		return text + ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns why: ErrOpen, an error of a context or of a connection.
func (e *Error) Unwrap() error { return e.cause }

// answered reports whether Redis was asked, and has answered that it will not.
func (e *Error) answered() bool {
	return e != nil && (e.Kind == Denied || e.Kind == Refused || e.Kind == ReadOnly || e.Kind == OutOfMemory || e.Kind == WrongType)
}

// ErrOpen is why a command was not sent: the breaker is open.
var ErrOpen = errors.New("redis is left alone: its circuit breaker is open")

var errClosed = errors.New("the broker is closed")

// kinds are those of the errors that Redis answers, by their first word.
var kinds = map[string]Kind{
	"READONLY": ReadOnly, "OOM": OutOfMemory, "MISCONF": ReadOnly,
	"NOAUTH": Denied, "NOPERM": Denied, "WRONGPASS": Denied,
	"WRONGTYPE": WrongType,
	"LOADING":   Loading, "BUSY": Loading, "MASTERDOWN": Loading, "CLUSTERDOWN": Loading,
}

// tooMany is Redis' answer to a connection that is one too many.
const tooMany = "ERR max number of clients reached"

// failure says what an error of go-redis is; nil if there was none, or if it
// only says that there was nothing.
func failure(c command, err error) *Error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	e := &Error{Command: string(c)}
	var known *Error
	var answered redis.Error
	var slow net.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &answered):
		text := answered.Error()
		e.code, _, _ = strings.Cut(text, " ")
		e.Kind = Refused
		if k, ok := kinds[e.code]; ok {
			e.Kind = k
		} else if strings.HasPrefix(text, tooMany) {
			e.Kind = Loading
		}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout(), errors.Is(err, redis.ErrPoolTimeout):
		e.Kind, e.cause = Timeout, context.DeadlineExceeded
	default:
		e.Kind, e.cause = Connection, err
	}
	return e
}
