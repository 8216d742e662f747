package phases

import (
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/budget"
)

// TestFailedQueuingIsGivenBack at once, and not when the request has ended.
func TestFailedQueuingIsGivenBack(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x"}`)
	a.b.failing["submit"] = true
	memory := budget.New(1 << 20)
	r := a.request(asyncBody, false, "x-llm-d-async-mode", "wait")
	r.Memory = memory.Open()
	if got := drive(t.Context(), r, a.phase, true); got.String() != "fails: ENQUEUE_FAILED" || memory.Used() != 0 {
		t.Errorf("%v, %d bytes are held", got, memory.Used())
	}
}

// TestQueuingIsCharged: while it is put into the queue a request's body is there
// twice. One for which there is no room is told so, and nothing is asked of Redis.
func TestQueuingIsCharged(t *testing.T) {
	a := newAsyncRig(t, `{"RedisURL":"x"}`)
	size := int64(len(asyncBody)) - 1 // a blank is not passed on
	for room, want := range map[int64]string{2 * size: `202 {"id":"id-1","status":"pending"}`, 2*size - 1: "fails: queue_full"} {
		for _, named := range []bool{true, false} {
			a.b = newMemoryBroker()
			a.phase.broker = a.b
			memory := budget.New(room)
			var during int64
			a.b.onSubmit = func() { during = memory.Used() }
			r := a.request(asyncBody, named, "x-llm-d-async-mode", "enqueue")
			r.Memory = memory.Open()
			if err := r.Memory.Charge(size); err != nil {
				t.Fatal(err)
			}
			got := drive(t.Context(), r, a.phase, true)
			if strings.TrimSpace(got.String()) != want {
				t.Errorf("%d bytes: %v, want %s", room, got, want)
			}
			refused := got.err != nil
			if refused == strings.Contains(a.b.commands(), "submit") || !refused && during != room {
				t.Errorf("%d bytes: %s, %d held meanwhile", room, a.b.commands(), during)
			}
			left := int64(0)
			if refused {
				left = size // for the server to give back
			}
			if strings.Contains(a.b.commands(), "cancel") || memory.Used() != left {
				t.Errorf("%d bytes: %s, %d held afterwards", room, a.b.commands(), memory.Used())
			}
		}
	}
}
