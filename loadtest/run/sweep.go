package main

import (
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llm-coordinator/coordinator/loadtest/report"
)

// sweep shows reports of the same load over what was varied from one to the next.
func sweep(args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("run sweep", flag.ContinueOnError)
	fs.SetOutput(stderr)
	along := fs.String("along", "setting", "`name` of what was varied")
	drawing := fs.String("svg", "", "`file` for a drawing")
	args, err := parseMixed(fs, args)
	if err != nil {
		return err
	}
	var points []report.Point
	for _, arg := range args {
		value, file, _ := strings.Cut(arg, "=")
		at, err := strconv.ParseFloat(value, 64)
		if err != nil || file == "" {
			fmt.Fprintf(stderr, "want reports with what was varied, as in 32=a.json 64=b.json, got %q\n", arg)
			return errUsage
		}
		f, err := report.Read(file)
		if err != nil {
			return err
		}
		points = append(points, report.Point{At: at, File: f})
	}
	if len(points) == 0 {
		fmt.Fprintln(stderr, "want reports with what was varied, as in 32=a.json 64=b.json")
		return errUsage
	}
	if err := report.WriteSweep(stdout, *along, points); err != nil {
		return err
	}
	return savePage(*drawing, func(w io.Writer) error { return report.WriteSweepDrawing(w, *along, points) })
}
