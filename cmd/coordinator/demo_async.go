package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/broker"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// demoQueue is the queue of a demo: one of its own, for a Redis that is given may
// have a broker already.
const demoQueue = "coordinator-demo"

// waitingRoom is where requests of a demo wait. Nil is none.
type waitingRoom struct {
	redis  string         // its URL
	memory *broker.Memory // nil: the Redis was given
}

// openWaitingRoom opens one, if there is to be one, in the Redis of that URL; "" is one
// in this process.
func openWaitingRoom(wanted bool, redis string) (*waitingRoom, error) {
	if redis != "" {
		return &waitingRoom{redis: redis}, nil
	}
	if !wanted {
		return nil, nil
	}
	memory, err := broker.StartMemory()
	if err != nil {
		return nil, err
	}
	return &waitingRoom{redis: memory.URL(), memory: memory}, nil
}

// step is the step of the configuration that puts requests there.
func (w *waitingRoom) step() string {
	if w == nil {
		return ""
	}
	wakeup := "auto"
	if w.memory != nil {
		wakeup = "poll" // it could not say what it can do
	}
	return fmt.Sprintf("[[pipeline.steps]]\ntype = \"async-broker\"\nparams = { redis_url = %q, default_queue = %q, wakeup_mode = %q }\n", w.redis, demoQueue, wakeup)
}

// serve has a small broker send what waits to the coordinator, until ctx ends. stop
// waits until it has ended.
func (w *waitingRoom) serve(ctx context.Context, coordinator net.Addr) (stop func(), err error) {
	if w == nil {
		return func() {}, nil
	}
	b, err := broker.Start(broker.Options{Redis: w.redis, Gateway: "http://" + coordinator.String(), Queue: demoQueue, RetryQueue: demoQueue + "-retry",
		PollInterval: 50 * time.Millisecond, ResultTTL: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	// Before the coordinator stops to serve, or what waits would fail.
	forget := context.AfterFunc(ctx, b.Close)
	return func() {
		forget()
		b.Close()
	}, nil
}

func (w *waitingRoom) close() {
	if w != nil && w.memory != nil {
		w.memory.Close()
	}
}

// name is for people.
func (w *waitingRoom) name() string {
	if w.memory != nil {
		return "a Redis in this process"
	}
	u, err := url.Parse(w.redis)
	if err != nil {
		return "Redis"
	}
	return cmp.Or(u.Host, u.Path)
}

// printWelcome says what there is to try.
func (w *waitingRoom) printWelcome(to io.Writer, public net.Addr) {
	if w == nil {
		return
	}
	curl := func(method, path, more string) {
		fmt.Fprintf(to, "curl -s%s http://%s%s%s\n", method, public, path, more)
	}
	ask := func(headers, text string) {
		curl("", "/v1/chat/completions", headers+` -H 'Content-Type: application/json' -d '{"model":"`+cluster.DefaultModel+`","messages":[{"role":"user","content":"`+text+`"}]}'`)
	}
	fmt.Fprintf(to, "\nRequests that may wait, in %s. Leave one, ask for it until it is done, delete it:\n\n", w.name())
	ask(" -H 'x-llm-d-async-mode: enqueue' -H 'x-request-id: my-1'", "Take your time.")
	curl("", "/v1/requests/my-1", "")
	curl(" -X DELETE", "/v1/requests/my-1", "")
	fmt.Fprintf(to, "\nOr wait for it:\n\n")
	ask(" -H 'x-llm-d-async-mode: wait'", "I have time.")
}
