package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. A second
// one ends the process at once, with the status of a drain that was not done. That
// is not left to the signal's default action: the kernel spares the first process
// of a container. Stop gives signals back their usual meaning.
func untilSignal(stderr io.Writer) (ctx context.Context, stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-signals:
			cancel()
		case <-done:
			return
		}
		select {
		case s := <-signals:
			fmt.Fprintf(stderr, "coordinator: %v again: ended at once\n", s)
			os.Exit(1)
		case <-done:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		waiting.Wait()
		cancel()
	}
}

// onHangup returns the SIGHUPs of the process from now on. Those that come while
// nobody receives one are one together. Stop gives the signal back its usual
// meaning, which is to end the process.
func onHangup() (hangups <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// reloadAt calls reload at each signal, until stop is called, which waits for one
// that is under way.
func reloadAt(signals <-chan os.Signal, reload func()) (stop func()) {
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-signals:
				reload()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		waiting.Wait()
	}
}
