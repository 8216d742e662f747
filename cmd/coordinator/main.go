// Command coordinator stands between OpenAI-compatible clients and an
// Inference Gateway and drives each request through the phases of a
// disaggregated fleet of LLM workers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const usage = `coordinator drives LLM requests through the phases of a disaggregated fleet.

  coordinator [serve]   serve clients, as the configuration says
  coordinator demo      serve with a simulated cluster on loopback: nothing else is needed;
                        -async: and with a small broker, for requests that may wait
  coordinator check     validate a configuration and print what it amounts to;
                        -live: try the routes that it needs as well
  coordinator explain FILE
                        say what would happen to a request, calling nothing
  coordinator import FILE
                        print our configuration for the YAML of the llm-d coordinator
  coordinator plan      print sizes of the pools for a rate of requests, as TOML
  coordinator cluster   run only the simulated cluster
  coordinator inspect-kwargs FILE
                        print the tensors of rendered multimodal items
  coordinator version   print the version

coordinator COMMAND -h lists the flags of a command.
`

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// command is one of the words after the program's name.
type command func(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error

var commands = map[string]command{
	"serve":          serve,
	"demo":           demo,
	"check":          check,
	"explain":        explainRequest,
	"import":         importConfig,
	"plan":           planSizes,
	"cluster":        simulate,
	"inspect-kwargs": inspectKwargs,
	"version":        printVersion,
}

// run runs a command until it is done, or until the first SIGINT or SIGTERM and
// what the command does about it; a second one ends the process at once.
func run(args, environ []string, stdout, stderr io.Writer) int {
	name := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	cmd := commands[name]
	if cmd == nil {
		fmt.Fprint(stderr, usage)
		return 2
	}
	ctx, stop := untilSignal(stderr)
	defer stop()
	err := cmd(ctx, args, environ, stdout, stderr)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	fmt.Fprintln(stderr, "coordinator:", err)
	return 1
}

// errUsage ends a command whose flags were wrong; the flag package has said so.
var errUsage = errors.New("wrong usage")

// flags makes the flag set of a command.
func flags(name string, stderr io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("coordinator "+name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	return fs
}

// parse reads the flags of a command that takes nothing else.
func parse(fs *flag.FlagSet, args []string) error {
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(fs.Output(), "unexpected argument %q\n", fs.Arg(0))
		return errUsage
	}
	return nil
}

// parseFile reads the flags of a command that takes one file, and returns its
// name.
func parseFile(fs *flag.FlagSet, args []string) (string, error) {
	if err := parseFlags(fs, args); err != nil {
		return "", err
	}
	if fs.NArg() != 1 {
		fs.Usage()
		return "", errUsage
	}
	return fs.Arg(0), nil
}

func parseFlags(fs *flag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return errUsage
	}
	return err
}
