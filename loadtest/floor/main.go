// Command floor is what a coordinator is measured against.
//
//	floor relay -addr 127.0.0.1:8090 -up http://127.0.0.1:9100 [-contract] [-actors]
//	floor backend -addr 127.0.0.1:9100 [-tokens 512] [-tensor-bytes 1000000] [-interval 500ms]
//
// relay is the floor: it makes the calls render, prefill and decode over net/http
// with the client's own body and copies decode's answer. It looks at nothing: no
// JSON, no limits, no metrics, and no encode calls. What a coordinator spends
// above it is its own, or the contract's: with -contract its legs are those that
// any coordinator has to make (contract.go), with -actors they are made by the
// coordinator's own engine (crew.go).
//
// backend plays all that stands behind a coordinator, as cheaply as can be: its
// answers are prepared bytes. It believes everything, which the simulated
// cluster (loadtest/cluster) does not; that one parses each leg and takes more of
// the machine than what is measured.
//
// Both print their address once they listen, and end with SIGINT or SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `usage: floor relay|backend [flags]; floor relay -h lists the flags
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errors.New("no command")
	}
	fs := flag.NewFlagSet("floor "+args[0], flag.ContinueOnError)
	fs.SetOutput(stderr)
	addr := fs.String("addr", "127.0.0.1:0", "`address` to listen on")
	switch args[0] {
	case "relay":
		up := fs.String("up", "http://127.0.0.1:9100", "base `URL` of the backend")
		var more relaySettings
		fs.BoolVar(&more.contract, "contract", false, "token ids, the client's headers, the request's id and a time-out on each leg")
		fs.BoolVar(&more.actors, "actors", false, "legs are made by workers of pools, under a supervisor of each request")
		if err := fs.Parse(args[1:]); err != nil {
			return err
		}
		r := newRelay(*up, more)
		defer r.close()
		return serve(ctx, *addr, r, stdout)
	case "backend":
		var b backendSettings
		fs.IntVar(&b.tokens, "tokens", 512, "token ids of each prompt")
		fs.IntVar(&b.tensorBytes, "tensor-bytes", 64, "size of an image's rendered tensor, as base64")
		fs.IntVar(&b.eventBytes, "event-bytes", 160, "text in each event of a stream, and in other answers")
		fs.DurationVar(&b.interval, "interval", 0, "pause after each event of a stream")
		if err := fs.Parse(args[1:]); err != nil {
			return err
		}
		return serve(ctx, *addr, newBackend(b), stdout)
	}
	fmt.Fprint(stderr, usage)
	return fmt.Errorf("unknown command %q", args[0])
}

// serve serves until ctx ends, and returns when no request is left.
func serve(ctx context.Context, addr string, h http.Handler, stdout io.Writer) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ending, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ending }}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		cancel() // handlers end
		stopped <- s.Shutdown(context.Background())
	})
	fmt.Fprintf(stdout, "http://%s\n", l.Addr())
	err = s.Serve(l)
	if stop() {
		return err // it failed by itself
	}
	return <-stopped
}
