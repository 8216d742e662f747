package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// released is set by release builds.
var released string

// version is the release, or what the Go command knows of the build.
func version() string {
	if released != "" {
		return released
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func printVersion(_ context.Context, args, _ []string, stdout, stderr io.Writer) error {
	if err := parse(flags("version", stderr), args); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "coordinator %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
