package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
)

// errBreak ends a leg by breaking its connection off.
var errBreak = errors.New("cluster: broken off")

// leg is one call while it is served, by one goroutine.
type leg struct {
	cluster *Cluster
	record  *Leg // its mutable fields are guarded by Cluster.mu
	name    string
	api     *api
	request *http.Request
	writer  http.ResponseWriter
	fault   *Fault // never nil, never changed

	body    object
	bodyErr error
	// sampling has the sampling parameters: the body itself, or an object in it.
	sampling object
	carried  string // id of the KV that a decode presents
	issued   string // id of the KV that a prefill pinned
	room     uint64 // that the leg is in, if hasRoom
	hasRoom  bool
	pushing  *push // what an encode does for ec-mooncake
	began    bool  // the answer's headers are out
	chunks   int   // SSE events sent
}

// arrive records a new leg.
func (c *Cluster) arrive(name string, a *api, w http.ResponseWriter, r *http.Request, reused bool) *leg {
	record := &Leg{
		Name: name, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Header: r.Header.Clone(), RequestID: r.Header.Get("X-Request-Id"), Reused: reused,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	record.Arrived = c.sequence
	c.record.arrivals++
	record.ID = c.record.arrivals
	c.record.add(record)
	c.state.Legs[name]++
	c.state.InFlight[name]++
	fault := c.takeFault(record)
	c.notify()
	return &leg{cluster: c, record: record, name: name, api: a, request: r, writer: w, fault: fault}
}

// serve runs a leg to its end. It panics with http.ErrAbortHandler, which makes
// the server close the connection, if the leg is to break off.
func (l *leg) serve() {
	err := l.run()
	var refused *refusal
	if errors.As(err, &refused) {
		if refused.status < 500 {
			l.cluster.free(l.carried) // vLLM tells prefill when it refuses a request
		}
		err = l.refuse(refused)
	}
	l.end(err)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// run returns a refusal if that is what the leg is to be answered, and another
// error if it cannot be answered (any more).
func (l *leg) run() error {
	if l.name != Origin && l.name != Query { // which know nothing of the contract
		l.noteHeaders()
		if err := l.readBody(); err != nil {
			return err
		}
	}
	c, ctx := l.cluster, l.request.Context()
	if err := c.passGates(ctx, l.record, AtArrival, 0); err != nil {
		return err
	}
	if err := c.pause(ctx, l.fault.Delay); err != nil {
		return err
	}
	if done, err := l.fail(); done || err != nil {
		return err
	}
	switch l.name {
	case Render:
		return l.render()
	case Prefill:
		return l.prefill()
	case Reserve:
		return l.reserve()
	case Encode:
		return l.encode()
	case Decode, Probe:
		return l.decode()
	case Origin:
		return l.origin()
	case Query:
		return l.query()
	}
	return l.answer(http.StatusNotFound, detail("no profile"))
}

// end records how the leg ended. err is why it has no (whole) answer.
func (l *leg) end(err error) {
	c := l.cluster
	// A fault breaks off too, and so does Close; neither is the client's doing.
	aborted := err != nil && !errors.Is(err, errBreak) && !errors.Is(err, ErrClosed)
	if aborted {
		c.free(l.carried)
		if !l.began {
			c.free(l.issued) // as if it had been stopped while it computed
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	l.record.Ended = c.sequence
	l.record.Aborted = aborted
	if aborted {
		c.state.Aborted[l.name]++
	}
	c.state.InFlight[l.name]--
	c.leaveRoom(l)
	c.notify()
}

// readBody reads and records the body. What is wrong with its form comes out
// when the worker looks at it.
func (l *leg) readBody() error {
	raw, err := io.ReadAll(l.request.Body)
	if err != nil {
		return err
	}
	l.cluster.mu.Lock()
	l.cluster.state.BytesIn[l.name] += int64(len(raw))
	if !l.cluster.options.OmitBodies {
		l.record.Body = raw
	}
	l.cluster.mu.Unlock()
	var repeated []string
	l.body, repeated, l.bodyErr = parseObject(withStandIns(raw))
	l.sampling = l.body
	if l.api.tokensIn {
		l.sampling, _, _ = parseObject(l.body["sampling_params"]) // check sees what is wrong with it
	}
	if l.bodyErr == nil {
		l.noteBody(repeated)
	}
	if l.name == Decode {
		l.carried, _ = l.cluster.fetchID(l.transferParams("kv_transfer_params"))
	}
	return nil
}

// check is what every worker does before it works.
func (l *leg) check() error {
	media, _, err := mime.ParseMediaType(l.request.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return badSchema("", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	if l.bodyErr != nil {
		return badSchema("", "JSON decode error: %v", l.bodyErr)
	}
	model, err := l.body.text("model")
	if err != nil {
		return err
	}
	if l.body.has("model") && model != l.cluster.options.Model {
		return &refusal{http.StatusNotFound, "NotFoundError", "The model `" + model + "` does not exist.", "model"}
	}
	if _, err := l.body.inner("sampling_params"); l.api.tokensIn && (err != nil || l.sampling == nil) {
		return badSchema("sampling_params", "sampling_params: Field required, a dictionary")
	}
	return checkFields(l.api, l.body, l.sampling)
}

// fail answers in the worker's stead if the leg's fault says so.
func (l *leg) fail() (done bool, err error) {
	f := l.fault
	switch {
	case f.Drop:
		return true, errBreak
	case f.Hang:
		return true, await(l.request.Context(), l.cluster, (<-chan struct{})(nil))
	case f.Redirect != "":
		l.writer.Header().Set("Location", f.Redirect)
		return true, l.answer(cmp.Or(f.Status, http.StatusTemporaryRedirect), []byte(f.Body))
	case f.Status != 0:
		body := []byte(f.Body)
		if f.Body == "" {
			body = l.errorBody(refusalOf(f.Status), false)
		}
		return true, l.answer(f.Status, body)
	case f.Garbage:
		return true, l.answer(http.StatusOK, []byte("<html>this is not what you asked for"))
	}
	return false, nil
}

// refuse answers with an error object.
func (l *leg) refuse(r *refusal) error {
	return l.answer(r.status, l.errorBody(r, false))
}

// answer sends a whole answer that is no stream.
func (l *leg) answer(status int, body []byte) error {
	if status == http.StatusNoContent || status == http.StatusNotModified {
		return l.begin(status) // HTTP has no body here
	}
	l.writer.Header().Set("Content-Type", "application/json")
	l.writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if err := l.begin(status); err != nil {
		return err
	}
	if l.fault.BreakAfter != nil {
		body = body[:len(body)/2]
	}
	if _, err := l.writer.Write(body); err != nil {
		return err
	}
	if l.fault.BreakAfter == nil {
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	return errBreak
}

// begin sends status and headers, once the gates there let it.
func (l *leg) begin(status int) error {
	if err := l.cluster.passGates(l.request.Context(), l.record, AtHeaders, 0); err != nil {
		return err
	}
	if revision := l.cluster.options.Revisions[l.name]; revision != "" {
		l.writer.Header().Set("X-Llm-D-Disagg-Revision", revision)
	}
	for name, value := range l.fault.Headers {
		l.writer.Header().Set(name, value)
	}
	l.began = true
	l.writer.WriteHeader(status)
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	l.record.Status = status
	l.cluster.notify()
	return nil
}

// flush puts on the wire what was written.
func (l *leg) flush() error {
	err := http.NewResponseController(l.writer).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (l *leg) violate(format string, args ...any) {
	l.cluster.violate(l.name, l.record.RequestID, format, args...)
}

// detail is the error body of the web framework under the workers.
func detail(text string) []byte {
	return encode(struct {
		Detail string `json:"detail"`
	}{text})
}

// rawJSON returns text as JSON, null if it is empty.
func rawJSON(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	return text
}
