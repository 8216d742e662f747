package broker

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Memory is a Redis within the process, for where none is installed. It has no
// keyspace notifications.
type Memory struct {
	*miniredis.Miniredis
	stop   chan struct{}
	moving sync.WaitGroup
}

// tick is how exact the times are at which keys of a Memory expire.
const tick = 50 * time.Millisecond

// StartMemory starts one on a free port of the loopback address. Close it after use.
func StartMemory() (*Memory, error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	m := &Memory{Miniredis: server, stop: make(chan struct{})}
	m.moving.Go(m.move)
	return m, nil
}

// move drives the clock, which does not go by itself.
func (m *Memory) move() {
	again := time.NewTicker(tick)
	defer again.Stop()
	for last := time.Now(); ; {
		select {
		case now := <-again.C:
			m.FastForward(now.Sub(last))
			last = now
		case <-m.stop:
			return
		}
	}
}

// URL is what clients are told.
func (m *Memory) URL() string { return "redis://" + m.Addr() + "/0" }

// Close ends it, and all that is in it.
func (m *Memory) Close() {
	close(m.stop)
	m.moving.Wait()
	m.Miniredis.Close()
}
