// Command release builds what a release consists of: for each platform an archive
// with a static binary, and a bill of materials (CycloneDX) of what is in that
// binary; and the checksums of all.
//
// Whoever runs it on the same sources with the same version of Go gets the same
// bytes: nothing of the machine, the directory or the day is in them. SOURCE_DATE_EPOCH
// may set the time that files in the archives have.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms are those that a release is for.
var platforms = []string{"linux/amd64", "linux/arm64"}

// versions are what a release may be called.
var versions = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// program is the binary's name, and begins the names of all files.
const program = "coordinator"

// sums is the file with the checksums.
const sums = "SHA256SUMS"

// release is what is to be built.
type release struct {
	// Version is as in v1.2.3.
	Version string
	// Root is the directory of the repository, Out where files go: nothing else may
	// be in there.
	Root, Out string
	// Time is what files in archives have.
	Time time.Time
	// Platforms are as in linux/amd64.
	Platforms []string
}

func main() {
	var r release
	flag.StringVar(&r.Version, "version", "", "`version` of the release, such as v1.2.3")
	flag.StringVar(&r.Root, "root", filepath.Join("..", ".."), "`directory` of the repository")
	flag.StringVar(&r.Out, "out", filepath.Join("..", "..", "dist"), "`directory` for what is built, new or empty")
	flag.Parse()
	r.Platforms = platforms
	err := r.setTime(os.Getenv("SOURCE_DATE_EPOCH"))
	if err == nil {
		err = r.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// setTime sets the time of files: seconds since 1970, or "" for a day on which
// nothing happened.
func (r *release) setTime(epoch string) error {
	seconds := int64(315532800) // 1 January 1980, before which some archives have no time
	if epoch != "" {
		var err error
		if seconds, err = strconv.ParseInt(epoch, 10, 64); err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: want seconds, got %q", epoch)
		}
	}
	r.Time = time.Unix(seconds, 0).UTC()
	return nil
}

// run builds everything.
func (r *release) run() error {
	if !versions.MatchString(r.Version) {
		return fmt.Errorf("-version: want one such as v1.2.3, got %q", r.Version)
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	if entries, err := os.ReadDir(r.Out); err != nil || len(entries) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty", r.Out))
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, platform := range r.Platforms {
		if err := r.platform(work, platform); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	return r.writeSums()
}

// platform builds what there is for one platform.
func (r *release) platform(work, platform string) error {
	name := strings.Join([]string{program, r.Version, strings.ReplaceAll(platform, "/", "_")}, "_")
	binary := filepath.Join(work, name)
	if err := r.build(binary, platform); err != nil {
		return err
	}
	if err := r.materials(filepath.Join(r.Out, name+".cdx.json"), binary); err != nil {
		return err
	}
	files, err := r.contents(binary)
	if err != nil {
		return err
	}
	return r.archive(filepath.Join(r.Out, name+".tar.gz"), name, files)
}

// build builds the binary of a platform. Everything that could come in from the
// environment is set: flags, and which processors it is for.
func (r *release) build(binary, platform string) error {
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -buildid= -X main.released="+r.Version, "-o", binary, "./cmd/"+program)
	cmd.Dir = r.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	return command(cmd)
}

// command runs a command, whose output is shown only if it fails.
func command(cmd *exec.Cmd) error {
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, output)
	}
	return nil
}

// writeSums writes the checksums of all files, in the format of sha256sum.
func (r *release) writeSums() error {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(r.Out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), e.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[sha256.Size*2:], b[sha256.Size*2:]) })
	all := strings.Join(lines, "")
	fmt.Print(all)
	return os.WriteFile(filepath.Join(r.Out, sums), []byte(all), 0o644)
}
