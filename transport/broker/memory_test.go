package broker

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// most is what a watcher may take, the names of its mailbox and of its
// notifications included, and what go-redis keeps of them.
const most = 600

// TestWatchersAreSmall: tens of thousands wait at once, with no goroutine and a
// few hundred bytes each.
func TestWatchersAreSmall(t *testing.T) {
	for _, way := range []string{Notify, Poll} {
		t.Run(way, func(t *testing.T) {
			r := connect(t, startRedis(t).URL(), func(s *Settings) {
				s.Wakeup = way
				s.PollInterval = 200 * time.Millisecond
				s.BackupInterval = time.Second
			})
			if way == Notify {
				until(t, "notifications arrive", r.live.Load)
			}
			const many = 20_000
			woken := 0
			wake := func(*Result) { woken++ }
			stops := make([]func(), 0, many)
			goroutines, before := runtime.NumGoroutine(), heap()
			for i := range many {
				stops = append(stops, r.Watch(Key{Tenant: "acme", ID: fmt.Sprintf("0190a0b0-aaaa-bbbb-cccc-%012d", i)}, wake))
			}
			if way == Notify {
				until(t, "all are subscribed", func() bool { return subscribed(t, r.raw) == many })
			}
			each := (heap() - before) / many
			t.Logf("%d bytes for each watcher", each)
			if each > most {
				t.Errorf("a watcher takes %d bytes, more than %d", each, most)
			}
			if more := runtime.NumGoroutine() - goroutines; more > 5 {
				t.Errorf("%d watchers take %d goroutines", many, more)
			}
			for _, stop := range stops {
				stop()
			}
			until(t, "nothing is kept in mind", r.forgotten)
		})
	}
}

// heap is what is in use when all garbage is gone.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// BenchmarkPoll is one look at so many mailboxes, in which there is nothing.
func BenchmarkPoll(b *testing.B) {
	br, err := Open(b.Context(), Settings{URL: startRedis(b).URL(), Wakeup: Poll, PollInterval: time.Hour}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer br.Close()
	for i := range 10_000 {
		defer br.Watch(Key{Tenant: "acme", ID: fmt.Sprint(i)}, func(*Result) {})()
	}
	b.ReportAllocs()
	for b.Loop() {
		br.poll(br.keys(nil))
	}
}
