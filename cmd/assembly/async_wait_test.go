package assembly_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAsyncWaitEnds: with the cap the request stays queued, with its deadline it is
// over, and a result at the last moment still counts.
func TestAsyncWaitEnds(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: "wait_cap_seconds = 1"})
	a.ask("wait", "cap-1", timeHeader, "20").is(t, 202, `{"id":"cap-1","status":"pending"}`)
	if a.queued(asyncQueue, 1); a.exists(cancelKey("cap-1")) {
		t.Error("who has waited enough has called his request off")
	}
	a.ask("wait", "cap-2", timeHeader, "1").is(t, 504, "timeout_error", "DEADLINE_EXCEEDED", "request deadline exceeded before a result was produced")
	if a.exists(cancelKey("cap-2")) {
		t.Error("a request whose time is over is called off")
	}
	a.settled()
}

// TestAsyncResultAtTheLastLookup: nobody tells of it, for the notifications were
// switched off, and between two looks the deadline comes.
func TestAsyncResultAtTheLastLookup(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{params: `wakeup_mode = "notify"`, real: true})
	s := a.begins("wait", "last-1", timeHeader, "10")
	a.held(1)
	a.redis.ConfigSet(t.Context(), "notify-keyspace-events", "")
	a.mail("last-1", answered("last-1", 200, "{}"))
	(<-s.answer).is(t, 200, "{}")
	a.settled()
}

// TestAsyncClientThatLeaves calls its request off; one that is asked for again before
// the broker has seen that is alive again.
func TestAsyncClientThatLeaves(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	s := a.begins("wait", "left-1")
	a.held(1)
	token := a.queued(asyncQueue, 1)[0].Internal.Token
	s.leave()
	if got := <-s.answer; got.err == nil {
		t.Errorf("%d %s", got.status, got.body)
	}
	a.eventually("called off", func() bool { return a.redis.Get(t.Context(), cancelKey("left-1")).Val() == token })
	if ttl := a.redis.TTL(t.Context(), cancelKey("left-1")).Val(); ttl <= 6*24*time.Hour || ttl > 7*24*time.Hour {
		t.Errorf("for %v", ttl)
	}
	again := a.begins("wait", "left-1")
	a.held(1)
	a.eventually("revived", func() bool { return !a.exists(cancelKey("left-1")) })
	a.queued(asyncQueue, 1)
	a.mail("left-1", answered("left-1", 200, "{}"))
	(<-again.answer).is(t, 200, "{}")
	a.settled()
}

// TestAsyncFailedWriteKeepsTheMailbox: a client that went away within its answer finds
// it again.
func TestAsyncFailedWriteKeepsTheMailbox(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: c\r\n%s: wait\r\nX-Request-Id: big-1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		chatPath, modeHeader, len(asyncBody), asyncBody)
	a.sent.Add(1)
	a.held(1)
	large := `{"a":"` + strings.Repeat("x", 16<<20) + `"}`
	a.mail("big-1", answered("big-1", 200, large))
	if _, err := conn.Read(make([]byte, 10)); err != nil { // it has begun
		t.Fatal(err)
	}
	conn.Close()
	a.settled()
	if !a.exists(mailbox("big-1")) || a.exists(cancelKey("big-1")) {
		t.Error("what could not be written is gone, or was called off")
	}
	a.call(http.MethodGet, "big-1").is(t, 200, large)
	a.settled()
}

// TestAsyncWakeUp by notification and by polling, each with Redis gone for a while in
// the middle.
func TestAsyncWakeUp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ mode, flags, want string }{
		{"notify", "Kl", "notify"}, {"auto", "Kl", "notify"}, {"auto", "KA", "notify"}, {"auto", "", "poll"}, {"auto", "El", "poll"}, {"poll", "Kl", "poll"},
	} {
		t.Run(tt.mode+" "+tt.flags, func(t *testing.T) {
			t.Parallel()
			a := newAsync(t, asyncSetup{params: fmt.Sprintf("wakeup_mode = %q", tt.mode), redis: []string{"--notify-keyspace-events", tt.flags}, real: true})
			s := a.begins("wait", "w-1")
			a.held(1)
			channel := "__keyspace@0__:" + mailbox("w-1")
			if tt.want == "notify" {
				a.eventually("subscribed", func() bool { return a.redis.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 })
			} else if n := a.redis.PubSubChannels(t.Context(), "*").Val(); len(n) > 0 {
				t.Errorf("subscribed to %q", n)
			}
			a.mail("w-1", answered("w-1", 200, "{}"))
			(<-s.answer).is(t, 200, "{}")
			a.eventually("not subscribed", func() bool { return len(a.redis.PubSubChannels(t.Context(), "*").Val()) == 0 })

			for i := range 2 {
				id := fmt.Sprintf("w-2%d", i)
				s = a.begins("wait", id)
				a.held(1)
				a.line.Down()
				a.mail(id, answered(id, 200, "{}")) // nobody hears of it
				a.line.Up()
				(<-s.answer).is(t, 200, "{}")
			}
			a.settled()
		})
	}
}

// TestAsyncTwoWaitForOne: both get the result, or the one that came late is told that
// there is none; neither is left waiting.
func TestAsyncTwoWaitForOne(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	first, second := a.begins("wait", "two-1"), (*sending)(nil)
	a.held(1)
	second = a.begins("wait", "two-1")
	a.held(2)
	a.queued(asyncQueue, 1)
	a.mail("two-1", answered("two-1", 200, "{}"))
	(<-first.answer).is(t, 200, "{}")
	(<-second.answer).is(t, 200, "{}")
	a.eventually("without a mailbox", func() bool { return !a.exists(mailbox("two-1")) })
	a.settled()
}

// TestAsyncOneOfTwoLeaves: the other still waits for the request, so it goes on.
func TestAsyncOneOfTwoLeaves(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	first := a.begins("wait", "two-2")
	a.held(1)
	second := a.begins("wait", "two-2")
	a.held(2)
	first.leave()
	if got := <-first.answer; got.err == nil {
		t.Errorf("%d %s", got.status, got.body)
	}
	a.held(1)
	a.eventually("nothing left to do for the first", func() bool { s := a.Engine.Status(); return s.Detached == 0 && s.Inflight == 1 })
	if a.exists(cancelKey("two-2")) {
		t.Error("the request was called off")
	}
	a.mail("two-2", answered("two-2", 200, "{}"))
	(<-second.answer).is(t, 200, "{}")
	a.settled()
}

// TestAsyncTenantThatIsNoText: the broker would answer to another mailbox.
func TestAsyncTenantThatIsNoText(t *testing.T) {
	t.Parallel()
	a := newAsync(t, asyncSetup{})
	a.ask("wait", "text-1", tenHeader, "caf\xe9").is(t, 400, "invalid_request_error", "INVALID_REQUEST", tenHeader+" must be UTF-8")
	a.settled()
}
