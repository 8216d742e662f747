package assembly

import (
	"context"
	"net"
	"time"
)

// Run serves clients on public, and operators on ops unless it is nil, until
// ctx ends; then it drains:
//
//  1. /readyz says no, and requests are still taken, for drain_delay;
//  2. the listener is closed, and requests in flight may finish, for
//     shutdown_timeout;
//  3. what is left is cut: streams end with an error event.
//
// It returns how many requests were cut, and an error if a listener failed.
func (c *Coordinator) Run(ctx context.Context, public, ops net.Listener) (cut int, err error) {
	failed := make(chan error, 2)
	serve := func(f func(net.Listener) error, l net.Listener) { failed <- f(l) }
	go serve(c.Server.Serve, public)
	serving := 1
	if ops != nil {
		go serve(c.Admin.Serve, ops)
		serving++
	}
	select {
	case <-ctx.Done():
		c.refuseReloads()
		c.log.Info("draining", "requests", c.Engine.Status().Inflight, "drain_delay", c.Config().Server.DrainDelay,
			"shutdown_timeout", c.Config().Server.ShutdownTimeout)
		c.Server.Drain()
		c.pause(failed, &serving, &err)
	case err = <-failed:
		serving--
	}
	cut = c.drain()
	for ; serving > 0; serving-- {
		if e := <-failed; err == nil {
			err = e
		}
	}
	return cut, err
}

// pause goes on serving for drain_delay.
func (c *Coordinator) pause(failed <-chan error, serving *int, err *error) {
	if c.Config().Server.DrainDelay <= 0 {
		return
	}
	t := time.NewTimer(c.Config().Server.DrainDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case *err = <-failed:
		*serving--
	}
}

// lastWords is how long clients may at least take for the end of their answers
// once the engine is done with them.
const lastWords = 2 * time.Second

// drain ends everything, in order.
func (c *Coordinator) drain() (cut int) {
	c.refuseReloads()
	end := time.Now().Add(c.Config().Server.ShutdownTimeout)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	clients, hurry := context.WithCancel(context.Background())
	defer hurry()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Server.Shutdown(clients)
	}()
	cut = c.Engine.Close(ctx)
	t := time.AfterFunc(max(time.Until(end), lastWords), hurry)
	defer t.Stop()
	<-closed
	c.Close()
	return cut
}

// Close frees what a coordinator holds. Requests that are left are cut.
func (c *Coordinator) Close() {
	c.refuseReloads()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c.Engine.Close(ended)
	c.Server.Close()
	if c.Admin != nil {
		c.Admin.Close()
	}
	c.retired.Wait()
	c.current.Load().close()
	c.traces.Close() // no request will end any more
}
