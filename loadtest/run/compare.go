package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/llm-coordinator/coordinator/loadtest/report"
)

// compare prints two reports beside each other.
func compare(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("run compare", flag.ContinueOnError)
	fs.SetOutput(stderr)
	page := fs.String("report", "", "`file` for the comparison, as a page of HTML with plots")
	files, err := parseMixed(fs, args)
	if err != nil {
		return err
	}
	return compareFiles(files, *page, stdout, stderr)
}

func compareFiles(files []string, page string, stdout, stderr io.Writer) error {
	if len(files) != 2 {
		fmt.Fprintf(stderr, "want two reports to compare, as -o has written them; got %d\n", len(files))
		return errUsage
	}
	a, err := report.Read(files[0])
	if err != nil {
		return err
	}
	b, err := report.Read(files[1])
	if err != nil {
		return err
	}
	names := shortened(files[0], files[1])
	one, other := report.Named{Name: names[0], File: a}, report.Named{Name: names[1], File: b}
	if err := report.WriteComparison(stdout, one, other); err != nil {
		return err
	}
	return savePage(page, func(w io.Writer) error { return report.WriteComparisonPage(w, one, other) })
}

// shortened returns names of files without directory and ending, if that leaves them
// different.
func shortened(a, b string) [2]string {
	short := func(name string) string { return strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)) }
	switch {
	case short(a) != short(b):
		return [2]string{short(a), short(b)}
	case a != b:
		return [2]string{a, b}
	}
	return [2]string{a, b + " (again)"}
}

// savePage writes a page to a file, as a whole or not at all; a name of "" is none.
func savePage(name string, write func(w io.Writer) error) error {
	if name == "" {
		return nil
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}
