package main

import (
	"context"
	"fmt"
	"io"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/cmd/migrate"
	"github.com/llm-coordinator/coordinator/conf"
)

const importUsage = `usage: coordinator import FILE

Prints our configuration for that of an llm-d coordinator. FILE (- is standard input)
is its YAML. Comments in the output say what differs; what is not taken over is kept
as a comment, and listed on standard error. The exit status is 1 if the output is not
valid, which is then said.
`

// importConfig writes the configuration of an llm-d coordinator as ours.
func importConfig(ctx context.Context, args, _ []string, stdout, stderr io.Writer) error {
	fs := flags("import", stderr)
	fs.Usage = func() { fmt.Fprint(stderr, importUsage) }
	name, err := parseFile(fs, args)
	if err != nil {
		return err
	}
	text, err := readInput(ctx, name)
	if err != nil {
		return err
	}
	if name == "-" {
		name = "standard input"
	}
	made, err := migrate.Convert(name, text)
	if err != nil {
		return err
	}
	if _, err := stdout.Write(made.TOML); err != nil {
		return err
	}
	for _, w := range made.Warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	return valid(made.TOML)
}

// valid reports what keeps a configuration from being served. Positions are of
// the lines that were printed.
func valid(text []byte) error {
	cfg, err := conf.Parse("output", text, nil)
	if err != nil {
		return fmt.Errorf("the output is not valid: %w", err)
	}
	c, err := assembly.New(cfg, assembly.Options{LookupEnv: lookupIn(nil), OpenBroker: assembly.Unopened})
	if err != nil {
		return fmt.Errorf("the output is not valid: %w", err)
	}
	c.Close()
	return nil
}
