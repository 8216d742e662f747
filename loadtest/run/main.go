// Command run loads a coordinator and reports what clients see and what it costs.
//
//	run -url http://127.0.0.1:8080 -c 32 -n 10000 -d 30s     closed loop: 32 clients
//	run -url http://127.0.0.1:8080 -rate 200 -n 10000 -d 30s open loop: 200 requests a second
//	run compare a.json b.json                                two reports beside each other
//	run sweep -along places 32=a.json 64=b.json              the same load at several settings
//	run hold -url http://127.0.0.1:8080 -streams 2000        streams that are held open
//	run overhead                                             the coordinator beside a floor: make overhead
//
// With -pid it watches a process of this machine, with -metrics it reads what the
// coordinator says of itself. Progress goes to stderr, the summary to stdout, with -o
// the whole report to a file, as JSON (see report.File), and with -report as a page
// with plots. It fails if a request did.
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
		case "compare":
			return compare(args[1:], stdout, stderr)
		case "sweep":
			return sweep(args[1:], stdout, stderr)
		}
		fmt.Fprintf(stderr, "unknown command %q: want compare, hold, overhead, sweep, or flags\n", args[0])
		return errUsage
	}
	return generate(ctx, args, stdout, stderr)
}

func parse(fs *flag.FlagSet, args []string) error {
	others, err := parseMixed(fs, args)
	if err == nil && len(others) > 0 {
		fmt.Fprintf(fs.Output(), "unexpected argument %q\n", others[0])
		return errUsage
	}
	return err
}

// parseMixed reads flags and returns what is between and behind them.
func parseMixed(fs *flag.FlagSet, args []string) (others []string, err error) {
	for {
		switch err := fs.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return nil, err
		case err != nil:
			return nil, errUsage
		case fs.NArg() == 0:
			return others, nil
		}
		others, args = append(others, fs.Arg(0)), fs.Args()[1:]
	}
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
