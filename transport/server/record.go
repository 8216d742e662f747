package server

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/llm-coordinator/coordinator/phases"
	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Running is what is known of a request when it has been read. It holds nothing of
// its content.
type Running struct {
	// Serial tells a request from all others of this process; clients may repeat
	// their ids.
	Serial                      string
	ID, Tenant, Protocol, Model string
	// Method and URLPath are those that the client called.
	Method, URLPath string
	Stream          bool
	// Prompts is how many prompts it has.
	Prompts int32
	// Received is when its headers were there, Read when its body was.
	Received, Read time.Time
	// BytesIn is the size of its body, Images, Audios and Videos how many it has.
	BytesIn int64
	Images  int
	Audios  int
	Videos  int
	// Journal may be read at any time.
	Journal *journal.Journal
}

// Record is what is known of a request that has ended. It holds nothing of its
// content.
type Record struct {
	Running
	// Status that the client saw, or 499 if it left before it saw one.
	Status int
	// Code of the error object, or "".
	Code string
	// Cause of the error for the log, or nil.
	Cause error
	// Gone: the client left before it had its answer.
	Gone bool
	// Bytes of the answer's body.
	Bytes int64
	// FirstByte and Total are times since the request came; FirstByte is 0 if
	// there was none.
	FirstByte, Total time.Duration
	// Overhead is the part of Total that the request waited neither for its own
	// body, nor for queues, nor for the answers of others.
	Overhead time.Duration
	// Path that it took through the workers; "" if none was called.
	Path string
	// Reruns counts how often the request was started again from prefill.
	Reruns int
	// Entry is what its journal says.
	journal.Entry
}

// serial makes the ids that tell requests apart.
type serial struct {
	start int64
	last  atomic.Uint64
}

func (s *serial) next() string {
	b := strconv.AppendInt(make([]byte, 0, 24), s.start, 36)
	return string(strconv.AppendUint(append(b, '-'), s.last.Add(1), 36))
}

// begun notes a request that has been read, or of which as much is known as
// ever will be.
func (s *Server) begun(h *http.Request, req *phases.Request, body int) *Running {
	media := req.Prompt.Media
	return &Running{Serial: s.serial.next(), ID: req.ID, Tenant: recorded(req.Tenant), Protocol: req.Protocol.Name, Model: recorded(req.Model),
		Method: h.Method, URLPath: recorded(h.URL.Path), Stream: req.Stream, Prompts: int32(req.Batch.Len()), Received: req.Received, Read: time.Now(), BytesIn: int64(body),
		Images: media.Count(wire.Image), Audios: media.Count(wire.Audio), Videos: media.Count(wire.Video), Journal: req.Journal}
}

// record returns what is known of a request that has ended.
func (a *answering) record(now time.Time) Record {
	rec := Record{Running: *a.running, Status: a.status, Bytes: a.bytes, Total: now.Sub(a.req.Received), Reruns: int(a.req.Reruns),
		Entry: a.req.Journal.Close()}
	rec.Path = rec.Entry.Path()
	rec.Overhead = max(0, now.Sub(rec.Read)-rec.Waiting(rec.Read, now))
	if !a.first.IsZero() {
		rec.FirstByte = a.first.Sub(a.req.Received)
	}
	if a.fault != nil {
		rec.Code, rec.Cause, rec.Gone = a.fault.ErrorCode(), a.fault, a.fault.Kind == wire.Canceled
	}
	return rec
}

// maxRecorded is the longest name that is recorded as it is.
const maxRecorded = 256

// recorded returns the name by which a model, a tenant or a path is recorded.
// Clients choose names: they may be megabytes, or no UTF-8 ("\ud800"), which no
// label can be.
func recorded(name string) string {
	if len(name) > maxRecorded || !utf8.ValidString(name) {
		return "other"
	}
	return name
}
