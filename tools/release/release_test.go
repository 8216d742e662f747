package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReleaseIsReproducible: built twice, the second time from a copy in another
// directory whose files have other times, it is the same, byte for byte; and it is
// what it says. It is for this machine's processor only, so that the binary runs.
func TestReleaseIsReproducible(t *testing.T) {
	root := filepath.Join("..", "..")
	here := build(t, root)
	copied := filepath.Join(t.TempDir(), "a", "copy")
	copySources(t, root, copied)
	there := build(t, copied)
	if len(here) != 3 {
		t.Fatalf("%d files were built", len(here))
	}
	for name, text := range here {
		if !bytes.Equal(text, there[name]) {
			t.Errorf("%s is not the same in another directory", name)
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name); name != sums && !strings.Contains(string(here[sums]), line) {
			t.Errorf("%s has other checksums: %s", name, here[sums])
		}
	}
	name := "coordinator_v1.2.3_" + runtime.GOOS + "_" + runtime.GOARCH
	files := unpack(t, here[name+".tar.gz"], name)
	for _, want := range []string{program, "LICENSE", "CHANGELOG.md", "conf/coordinator.toml", "conf/examples/decode.toml"} {
		if files[want] == nil {
			t.Errorf("%s is not in the archive", want)
		}
	}
	checkBinary(t, files[program], here[name+".cdx.json"])
}

// build builds a release and returns its files.
func build(t *testing.T, root string) map[string][]byte {
	t.Helper()
	r := release{Version: "v1.2.3", Root: root, Out: filepath.Join(t.TempDir(), "dist"), Platforms: []string{runtime.GOOS + "/" + runtime.GOARCH}}
	if err := r.setTime(""); err != nil {
		t.Fatal(err)
	}
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(r.Out, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// copySources copies what a release is built of.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	for _, dir := range []string{"actors", "cmd", "conf", "connectors", "loadtest", "phases", "transport"} {
		if err := os.CopyFS(filepath.Join(to, dir), os.DirFS(filepath.Join(from, dir))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum", "LICENSE", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(from, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// unpack returns the files of an archive, all of which are in a directory.
func unpack(t *testing.T, packed []byte, dir string) map[string][]byte {
	t.Helper()
	text, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(text); ; {
		head, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(head.Name, dir+"/")
		if !ok || head.Uid != 0 || head.Gid != 0 || head.Uname != "" || !head.ModTime.Equal(time.Unix(315532800, 0)) {
			t.Errorf("%s: %+v", head.Name, head)
		}
		if files[name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// checkBinary looks at the binary: it says its version, is static, has nothing of
// where it was built, and its bill of materials would be refused without any one
// of its modules.
func checkBinary(t *testing.T, text, bill []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), program)
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(path, "version").Output()
	if err != nil || !strings.HasPrefix(string(said), "coordinator v1.2.3 ") {
		t.Errorf("%s %v", said, err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []debug.BuildSetting{{Key: "CGO_ENABLED", Value: "0"}, {Key: "-trimpath", Value: "true"}} {
		if !slices.Contains(info.Settings, want) {
			t.Errorf("not built with %v: %v", want, info.Settings)
		}
	}
	home, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{home + "/", runtime.GOROOT() + "/src"} {
		if bytes.Contains(text, []byte(place)) {
			t.Errorf("the binary names %s", place)
		}
	}
	if err := checkMaterials(bill, info.Deps); err != nil {
		t.Error(err)
	}
	for _, m := range info.Deps {
		without := bytes.ReplaceAll(bill, []byte(`"name": "`+m.Path+`"`), []byte(`"name": "other"`))
		if checkMaterials(without, info.Deps) == nil {
			t.Errorf("nobody misses %s", m.Path)
		}
	}
}

// TestOnlyVersionsAreReleased, and nothing is written over.
func TestOnlyVersionsAreReleased(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3 -X main.x=y", "latest", "v1.2.3/.."} {
		r := release{Version: version, Root: filepath.Join("..", ".."), Out: t.TempDir()}
		if err := r.run(); err == nil || !strings.Contains(err.Error(), "-version") {
			t.Errorf("%q: %v", version, err)
		}
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "kept"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := release{Version: "v1.2.3", Root: filepath.Join("..", ".."), Out: full}
	if err := r.run(); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("%v", err)
	}
	if err := r.setTime("noon"); err == nil {
		t.Error("a time that is no number is taken")
	}
	if err := r.setTime("1700000000"); err != nil || r.Time.Unix() != 1700000000 {
		t.Errorf("%v %v", r.Time, err)
	}
}
