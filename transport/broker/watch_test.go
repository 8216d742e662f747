package broker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ways are a Redis and how a broker learns from it that a result has come, with
// the other way of learning it switched off.
func ways(t *testing.T, test func(t *testing.T, r *rig)) {
	notified := func(s *Settings) { s.Wakeup = Notify; s.PollInterval = time.Hour; s.BackupInterval = time.Hour }
	polled := func(s *Settings) { s.Wakeup = Poll }
	t.Run("notified", func(t *testing.T) {
		r := connect(t, startRedis(t).URL(), notified)
		until(t, "notifications arrive", r.live.Load)
		test(t, r)
	})
	t.Run("polled", func(t *testing.T) { test(t, connect(t, startRedis(t).URL(), polled)) })
	t.Run("polled in memory", func(t *testing.T) {
		each(t, func(t *testing.T, url string) { test(t, connect(t, url, polled)) })
	})
}

// TestWatch wakes each watcher of a mailbox once, with the newest of what is
// there, and those of others not.
func TestWatch(t *testing.T) {
	ways(t, func(t *testing.T, r *rig) {
		first, stopFirst := r.watch(abc)
		second, _ := r.watch(abc)
		stopped, stop := r.watch(abc)
		other, stopOther := r.watch(Key{Tenant: "other", ID: abc.ID})
		stop()
		r.push(abc, `{"status_code":200,"payload":"{}"}`)
		for _, c := range []<-chan *Result{first, second} {
			if found := woken(t, c); found.Status != 200 || string(found.Payload) != "{}" {
				t.Errorf("found %+v", found)
			}
		}
		stopFirst()
		stopOther()
		if len(first)+len(second)+len(stopped)+len(other) > 0 {
			t.Error("somebody was woken that should not be")
		}
		if n := r.Status().Watched; n != 0 || r.metric("redis_watched_mailboxes") != 0 {
			t.Errorf("%d are watched", n)
		}
		r.push(abc, `{"status_code":500}`) // the mailbox was not emptied
		third, _ := r.watch(abc)
		if found := woken(t, third); found.Status != 500 {
			t.Errorf("found %+v", found)
		}
		until(t, "nothing is subscribed", func() bool { return subscribed(t, r.raw) == 0 && r.forgotten() })
	})
}

// forgotten reports whether no mailbox is kept in mind.
func (r *rig) forgotten() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all) == 0
}

// TestWatchFindsWhatWasThere before it, and what is not to be read.
func TestWatchFindsWhatWasThere(t *testing.T) {
	ways(t, func(t *testing.T, r *rig) {
		for _, element := range []string{"no JSON", ""} {
			r.push(abc, element)
			got, _ := r.watch(abc)
			if found := woken(t, got); !found.Malformed {
				t.Errorf("found %+v", found)
			}
		}
	})
}

// TestWatchMany at once, more than a batch has, while others come and go.
func TestWatchMany(t *testing.T) {
	ways(t, func(t *testing.T, r *rig) {
		const many = 1200
		var left sync.WaitGroup
		var wrong atomic.Int32
		key := func(i int) Key { return Key{Tenant: "acme", ID: fmt.Sprint(i)} }
		for i := range many {
			left.Add(1)
			r.Watch(key(i), func(found *Result) {
				if found.Status != 200+i {
					wrong.Add(1)
				}
				left.Done()
			})
			stop := r.Watch(Key{Tenant: "gone", ID: fmt.Sprint(i)}, func(*Result) { wrong.Add(1) })
			if i%2 == 0 {
				defer stop()
			} else {
				stop()
			}
		}
		pipe := r.raw.Pipeline()
		for i := range many {
			pipe.LPush(t.Context(), key(i).mailbox(), fmt.Sprintf(`{"status_code":%d}`, 200+i))
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		left.Wait()
		if wrong.Load() > 0 {
			t.Errorf("%d were woken wrongly", wrong.Load())
		}
		if n := r.Status().Watched; n != many/2 {
			t.Errorf("%d are watched", n)
		}
	})
}

// TestStopAgainstWake: once stop has returned, wake is not called.
func TestStopAgainstWake(t *testing.T) {
	ways(t, func(t *testing.T, r *rig) {
		for i := range 300 {
			k := Key{Tenant: "acme", ID: fmt.Sprint(i)}
			var stopped, late atomic.Bool
			stop := r.Watch(k, func(*Result) {
				if stopped.Load() {
					late.Store(true)
				}
			})
			var pushed sync.WaitGroup
			pushed.Go(func() { r.push(k, `{}`) })
			if i%2 == 0 {
				pushed.Wait()
			}
			stop()
			stopped.Store(true)
			pushed.Wait()
			stop()
			if late.Load() {
				t.Fatal("woken after stop")
			}
		}
	})
}

// TestStopWhileOthersWake: one is to be woken next, and stops.
func TestStopWhileOthersWake(t *testing.T) {
	ways(t, func(t *testing.T, r *rig) {
		began, goOn, late := make(chan bool), make(chan bool), make(chan *Result, 2)
		stopNext := r.Watch(abc, func(found *Result) { late <- found })
		r.Watch(abc, func(*Result) { // the newest is woken first
			began <- true
			<-goOn
		})
		r.push(abc, `{}`)
		<-began
		stopNext()
		goOn <- true
		other, _ := r.watch(Key{Tenant: "acme", ID: "later"})
		r.push(Key{Tenant: "acme", ID: "later"}, `{}`)
		woken(t, other)
		if len(late) > 0 {
			t.Error("woken after stop")
		}
	})
}

// TestAgainAndAgain: one mailbox is watched and left in quick turns, so that it
// is subscribed while it is being unsubscribed.
func TestAgainAndAgain(t *testing.T) {
	ways(t, func(t *testing.T, r *rig) {
		for range 200 {
			for range 3 {
				_, stop := r.watch(abc)
				stop()
			}
			got, _ := r.watch(abc)
			r.push(abc, `{"status_code":200}`)
			woken(t, got)
			if err := r.Delete(t.Context(), abc); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestPollReadsWhatIsThere, of many mailboxes of which few are filled, and nothing
// else.
func TestPollReadsWhatIsThere(t *testing.T) {
	r := connect(t, startRedis(t).URL(), func(s *Settings) { s.Wakeup, s.PollInterval = Poll, time.Hour })
	var waiting []<-chan *Result
	for i := range 2*askAtOnce + 100 {
		c, _ := r.watch(Key{Tenant: "acme", ID: fmt.Sprint(i)})
		waiting = append(waiting, c)
	}
	filled := []int{3, 700, 701}
	for _, i := range filled {
		r.push(Key{Tenant: "acme", ID: fmt.Sprint(i)}, fmt.Sprintf(`{"status_code":%d}`, 200+i))
	}
	r.poll(r.keys(nil))
	for _, i := range filled {
		if found := woken(t, waiting[i]); found.Status != 200+i {
			t.Errorf("%d found %+v", i, found)
		}
	}
	if said := r.raw.Info(t.Context(), "commandstats").Val(); !strings.Contains(said, "cmdstat_lindex:calls=3,") {
		t.Errorf("Redis was asked: %s", said)
	}
	if n := r.Status().Watched; n != len(waiting)-len(filled) {
		t.Errorf("%d are still waited for", n)
	}
}

// TestNotify insists.
func TestNotify(t *testing.T) {
	server := startRedis(t, "--notify-keyspace-events", "KEg")
	s := Settings{URL: server.URL(), Wakeup: Notify}
	want := "redis at " + server.Addr + "/0: it sends no keyspace notifications for lists, and wakeup mode notify insists on them: set notify-keyspace-events Kl"
	if _, err := Open(t.Context(), s, nil, nil); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

// TestAutoFollows what Redis is set to.
func TestAutoFollows(t *testing.T) {
	r := connect(t, startRedis(t, "--notify-keyspace-events", "").URL())
	for range 2 {
		if s := r.Status(); s.Wakeup != Poll {
			t.Errorf("status %+v", s)
		}
		first, _ := r.watch(abc)
		r.push(abc, `{}`)
		woken(t, first)
		r.raw.ConfigSet(t.Context(), "notify-keyspace-events", "KA")
		until(t, "notifications arrive", r.live.Load)
		r.raw.Del(t.Context(), abc.mailbox())
		second, _ := r.watch(abc)
		r.push(abc, `{}`)
		woken(t, second)
		r.raw.ConfigSet(t.Context(), "notify-keyspace-events", "")
		until(t, "it polls", func() bool { return !r.live.Load() })
		r.raw.Del(t.Context(), abc.mailbox())
	}
	if r.log.count("notifications ended") == 0 {
		t.Error("nothing was said")
	}
}

// TestClose wakes nobody, and refuses what comes after.
func TestClose(t *testing.T) {
	ways(t, func(t *testing.T, r *rig) {
		_, stop := r.watch(abc)
		if err := r.Broker.Close(); err != nil {
			t.Error(err)
		}
		stop()
		_, after := r.watch(abc)
		after()
		if _, _, err := r.Lookup(context.Background(), abc); err == nil || err.Error() != "redis: lookup: closed" {
			t.Errorf("a lookup afterwards: %v", err)
		}
		if err := r.Submit(context.Background(), submission(abc, `{}`)); err == nil || err.Error() != "redis: submit: closed" {
			t.Errorf("a submission afterwards: %v", err)
		}
		if r.metric("redis_watched_mailboxes") != 0 {
			t.Error("mailboxes are watched")
		}
	})
}
