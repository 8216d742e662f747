// Command run loads a coordinator and reports what clients see and what it costs.
//
//	run -url http://127.0.0.1:8080 -c 32 -n 10000 -d 30s     closed loop: 32 clients
//	run -url http://127.0.0.1:8080 -rate 200 -n 10000 -d 30s open loop: 200 requests a second
//	run hold -url http://127.0.0.1:8080 -streams 2000        streams that are held open
//	run overhead                                             the coordinator beside a floor: make overhead
//
// With -pid it watches a process of this machine. Progress goes to stderr, the
// summary to stdout, and with -o the whole report to a file, as JSON (see
// load.Report). It fails if a request did.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

// errUsage is wrong usage; the flag package has said so.
var errUsage = errors.New("wrong usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "hold":
			return hold(ctx, args[1:], stdout, stderr)
		case "overhead":
			return overhead(ctx, args[1:], stdout, stderr)
		}
		fmt.Fprintf(stderr, "unknown command %q: want hold, overhead, or flags\n", args[0])
		return errUsage
	}
	return generate(ctx, args, stdout, stderr)
}

func parse(fs *flag.FlagSet, args []string) error {
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return errUsage
	case fs.NArg() > 0:
		fmt.Fprintf(fs.Output(), "unexpected argument %q\n", fs.Arg(0))
		return errUsage
	}
	return nil
}

// save writes a report to a file, as JSON; a name of "" is none.
func save(name string, report any) error {
	if name == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}
