package actors

import "github.com/asynkron/protoactor-go/actor"

// inline runs a supervisor on the goroutine that sends to it, which saves a
// wake-up for each hop. That is safe because a supervisor never blocks and
// because no lock is held where something is sent.
var inline = actor.NewSynchronizedDispatcher(300)

// roomy starts a goroutine for each run of a mailbox, as the default
// dispatcher does, but grows its stack while it is one frame deep. A worker's
// call into net/http is some thirty frames deep; growing the stack on the way
// copies it again and again.
type roomy struct{}

// Throughput is after how many messages a mailbox lets others run.
func (roomy) Throughput() int { return 300 }

// Schedule runs fn on a goroutine of its own.
func (roomy) Schedule(fn func()) {
	go func() {
		growStack()
		fn()
	}()
}

//go:noinline
func growStack() {
	var pad [5 << 10]byte
	touch(&pad)
}

//go:noinline
func touch(pad *[5 << 10]byte) { pad[0] = 1 }
