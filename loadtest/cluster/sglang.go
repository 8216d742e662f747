package cluster

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The address by which the one prefill worker is known: of its HTTP endpoint, and
// the port of its bootstrap server.
const (
	prefillEndpoint = "10.0.0.1:8000"
	bootstrapPort   = 8998
)

// reserveEndpoint is the Prefer header of a call by which the gateway only chooses
// a prefill worker.
const reserveEndpoint = "reserve-endpoint"

// pairs reports whether prefill and decode work at the same time, as SGLang's do.
func (c *Cluster) pairs() bool { return c.options.KV == KVSGLang }

// pairsHere reports whether the leg is one of a pair.
func (l *leg) pairsHere() bool {
	return l.cluster.pairs() && (l.name == Prefill || l.name == Decode)
}

// meetings are the rooms in which a prefill and a decode meet. Guarded by
// Cluster.mu.
type meetings struct {
	open map[uint64]*meeting
	// been are the legs that have been in a room, reserved the requests for which a
	// worker was reserved.
	been     bounded[visit]
	reserved bounded[string]
}

func newMeetings(limit int) meetings {
	return meetings{open: map[uint64]*meeting{}, been: newBounded[visit](limit), reserved: newBounded[string](limit)}
}

// visit is that a leg of that name has been in a room.
type visit struct {
	room uint64
	name string
}

// meeting is a room with somebody in it.
type meeting struct {
	first    *leg
	both     chan struct{} // closed when the second has come
	complete bool
	handed   chan struct{} // closed when decode has the KV
}

// errNoRoom is what a worker of a pair says to a request that names no exchange.
var errNoRoom = badValue("", "Disaggregated request received without bootstrap room id")

// errBadPair is what a worker of a pair says when it cannot find the other, or finds
// the wrong one. What is wrong is a violation.
var errBadPair = refusalOf(http.StatusInternalServerError)

// readRoom reads where the workers of the leg are to meet.
func (l *leg) readRoom() (uint64, error) {
	if !l.body.has("bootstrap_room") {
		return 0, errNoRoom
	}
	room, err := strconv.ParseUint(string(l.body["bootstrap_room"]), 10, 63)
	if err != nil {
		l.violate("bootstrap_room is %s, no integer from 0 to 2^63-1", l.body["bootstrap_room"])
		return 0, badSchema("bootstrap_room", "bootstrap_room: Input should be a valid integer")
	}
	host, _, _ := net.SplitHostPort(prefillEndpoint)
	if string(l.body["bootstrap_host"]) != strconv.Quote(host) || string(l.body["bootstrap_port"]) != strconv.Itoa(bootstrapPort) {
		l.violate("bootstrap_host and bootstrap_port are %s and %s, not those of the prefill worker", l.body["bootstrap_host"], l.body["bootstrap_port"])
		return 0, errBadPair
	}
	return room, nil
}

// meet waits for the other leg in the room: for as long as its own request lasts,
// if the other has come and gone. Nobody comes twice.
func (l *leg) meet() (*meeting, error) {
	room, err := l.readRoom()
	if err != nil {
		return nil, err
	}
	c := l.cluster
	c.mu.Lock()
	m, breach := c.enterRoom(room, l)
	c.mu.Unlock()
	if breach != "" {
		l.violate("%s", breach)
		return nil, errBadPair
	}
	l.room, l.hasRoom = room, true
	return m, await(l.request.Context(), c, m.both)
}

// enterRoom puts a leg into a room. The caller holds mu.
func (c *Cluster) enterRoom(room uint64, l *leg) (m *meeting, breach string) {
	m = c.meetings.open[room]
	here := visit{room, l.name}
	switch {
	case m == nil && c.meetings.been.members[here]:
		return nil, "the room was used before"
	case m == nil:
		c.meetings.been.add(here)
		m = &meeting{first: l, both: make(chan struct{}), handed: make(chan struct{})}
		c.meetings.open[room] = m
		c.state.AloneInRooms++
		c.notify()
		return m, ""
	case m.complete || m.first.name == l.name:
		return nil, "two " + l.name + " legs are in one room"
	}
	c.meetings.been.add(here)
	m.complete = true
	c.state.Rooms++
	c.state.AloneInRooms--
	close(m.both)
	c.notify()
	return m, differences(m.first, l)
}

// leaveRoom is the end of a leg. Its partner, if it has none yet or has not got what
// it waits for, gets nothing any more. The caller holds mu.
func (c *Cluster) leaveRoom(l *leg) {
	if !l.hasRoom {
		return
	}
	if m := c.meetings.open[l.room]; m != nil && !m.complete {
		c.state.AloneInRooms--
	}
	delete(c.meetings.open, l.room)
}

// mayDiffer are the fields that only one leg of a pair may have.
var mayDiffer = []string{"ec_transfer_params"}

// differences says in what the bodies of two legs are not the same, "" if in nothing.
func differences(a, b *leg) string {
	if a.record.Path != b.record.Path {
		return "its path is not that of the other leg"
	}
	for name, value := range a.body {
		if !slices.Contains(mayDiffer, name) && !same(value, b.body[name]) {
			return "its field " + name + " is not that of the other leg"
		}
	}
	for name := range b.body {
		if _, ok := a.body[name]; !ok && !slices.Contains(mayDiffer, name) {
			return "the other leg has no field " + name
		}
	}
	return ""
}

// prefillOfPair is the prefill worker: it answers once a decode has fetched the KV.
func (l *leg) prefillOfPair(p *prompt) error {
	m, err := l.meet()
	if err != nil {
		return err
	}
	c := l.cluster
	c.remember(p)
	if err := c.pause(l.request.Context(), c.options.PrefillDelay); err != nil {
		return err
	}
	close(m.handed)
	return l.answerText(l.newText(p, p.reply(), 1, 1), true)
}

// fetchFromPair is how the decode worker of a pair comes by its prompt's KV.
func (l *leg) fetchFromPair() error {
	m, err := l.meet()
	if err != nil {
		return err
	}
	c := l.cluster
	if err := await(l.request.Context(), c, m.handed); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.FetchedKV++
	c.notify()
	return nil
}

// reserve is the gateway: it chooses a prefill worker and says which.
func (l *leg) reserve() error {
	if _, err := l.workersPrompt(); err != nil {
		return err
	}
	c := l.cluster
	base, ok := strings.CutSuffix(withoutRetry(l.record.RequestID), "-reserve")
	if !ok {
		l.violate("the id of a reserve call is %s", l.record.RequestID)
	}
	c.mu.Lock()
	c.meetings.reserved.add(withoutRetry(base))
	c.mu.Unlock()
	l.nameWorker()
	return l.begin(http.StatusOK)
}

// nameWorker says in a header of the answer which prefill worker a request is for.
func (l *leg) nameWorker() {
	if l.cluster.chooses() {
		l.writer.Header().Set(l.cluster.options.WorkerHeader, l.cluster.endpoint())
	}
}

// notePin notes a prefill that is pinned to a worker there is not, or not pinned
// though one was reserved for it.
func (l *leg) notePin() {
	pins := l.request.Header.Values("X-Prefill-Pin-Host-Port")
	c := l.cluster
	c.mu.Lock()
	reserved := c.meetings.reserved.members[withoutRetry(l.record.RequestID)]
	c.mu.Unlock()
	switch {
	case l.name != Prefill && pins != nil:
		l.violate("a %s leg is pinned to %q", l.name, pins)
	case reserved && l.name == Prefill && pins == nil:
		l.violate("a worker was reserved, and the leg is not pinned to it")
	case pins != nil && (len(pins) != 1 || pins[0] != l.cluster.endpoint()):
		l.violate("the leg is pinned to %q, not to %s", pins, l.cluster.endpoint())
	}
}

// flatError is SGLang's error object.
type flatError struct {
	Object  string  `json:"object"`
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// errorBody is the error object of the leg's worker: in a stream it is inside an
// object, with SGLang otherwise not.
func (l *leg) errorBody(r *refusal, stream bool) json.RawMessage {
	if !l.pairsHere() {
		return encode(r.body())
	}
	fields := r.body().Error
	flat := flatError{"error", fields.Message, fields.Type, fields.Param, fields.Code}
	if !stream {
		return encode(flat)
	}
	return encode(struct {
		Error flatError `json:"error"`
	}{flat})
}
