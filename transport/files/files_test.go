package files_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// always looks at files each time, and logs to the buffer.
func always(to *bytes.Buffer) files.Options {
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return files.Options{Every: -1, Log: slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: noTime}))}
}

// joined makes a text of all files, none of which may be "bad".
func joined(contents [][]byte) (string, error) {
	for _, c := range contents {
		if string(c) == "bad" {
			return "", errors.New("it is bad")
		}
	}
	return string(bytes.Join(contents, []byte("+"))), nil
}

func TestFilesAreReadAgain(t *testing.T) {
	d, logs := filestest.NewDir(t), &bytes.Buffer{}
	a, b := d.Write("a", []byte("1")), d.Write("b", []byte("2"))
	v, err := files.NewValue(always(logs), joined, a, b)
	if err != nil {
		t.Fatal(err)
	}
	const (
		again = `level=INFO msg="read again, for it has changed" file="A, B"` + "\n"
		kept  = `level=WARN msg="could not be read again: what was read before stays in use" file="A, B" error=`
	)
	steps := []struct {
		name   string
		change func()
		want   string
		log    string
	}{
		{"nothing", func() {}, "1+2", ""},
		{"changed", func() { d.Write("b", []byte("3")) }, "1+3", again},
		{"nothing more", func() {}, "1+3", ""},
		{"makes no sense", func() { d.Write("a", []byte("bad")) }, "1+3", kept + `"A, B: it is bad"` + "\n"},
		{"still", func() {}, "1+3", ""},
		{"still, though the other has changed", func() { d.Write("b", []byte("4")) }, "1+3", ""},
		{"gone", func() { os.Remove(b) }, "1+3", kept + `"stat B: no such file or directory"` + "\n"},
		{"back", func() { d.Write("b", []byte("5")); d.Write("a", []byte("6")) }, "6+5", again},
		{"bad again", func() { d.Write("a", []byte("bad")) }, "6+5", kept + `"A, B: it is bad"` + "\n"},
		{"as before", func() { d.Write("a", []byte("6")) }, "6+5", again},
		{"a link to another", func() {
			os.Remove(a)
			if err := os.Symlink(d.Write("c", []byte("7")), a); err != nil {
				t.Fatal(err)
			}
		}, "7+5", again},
	}
	for _, s := range steps {
		s.change()
		logs.Reset()
		if got := v.Get(); got != s.want {
			t.Errorf("%s: got %s, want %s", s.name, got, s.want)
		}
		if got := strings.NewReplacer(a, "A", b, "B").Replace(logs.String()); got != s.log {
			t.Errorf("%s: logged %s, want %s", s.name, got, s.log)
		}
	}
}

// TestFilesAreLeftAloneForAWhile: looking at them costs a system call.
func TestFilesAreLeftAloneForAWhile(t *testing.T) {
	d := filestest.NewDir(t)
	a := d.Write("a", []byte("1"))
	synctest.Test(t, func(t *testing.T) {
		v, err := files.NewValue(files.Options{}, joined, a)
		if err != nil {
			t.Fatal(err)
		}
		d.Write("a", []byte("2"))
		<-time.After(files.DefaultEvery - 1)
		if got := v.Get(); got != "1" {
			t.Errorf("got %s before its time", got)
		}
		<-time.After(1)
		if got := v.Get(); got != "2" {
			t.Errorf("got %s", got)
		}
		d.Write("a", []byte("3"))
		if got := v.Get(); got != "2" {
			t.Errorf("got %s before its time", got)
		}
		<-time.After(files.DefaultEvery)
		if got := v.Get(); got != "3" {
			t.Errorf("got %s", got)
		}
	})
}

func TestManyMayAsk(t *testing.T) {
	d := filestest.NewDir(t)
	v, err := files.NewValue(files.Options{Every: -1}, joined, d.Write("a", []byte("1")))
	if err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 200 {
				if got := v.Get(); got != "1" && got != "2" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	if err := os.Rename(d.Write("b", []byte("2")), d.Path("a")); err != nil {
		t.Error(err)
	}
	asking.Wait()
	if got := v.Get(); got != "2" {
		t.Errorf("got %q", got)
	}
}

// TestFilesThatAreNone: a pipe would never end, a device neither.
func TestFilesThatAreNone(t *testing.T) {
	d := filestest.NewDir(t)
	large := d.Write("large", make([]byte, 1<<20+1))
	for path, want := range map[string]string{
		d.Path("none"):      "stat " + d.Path("none") + ": no such file or directory",
		filepath.Dir(large): "read " + filepath.Dir(large) + ": not a regular file",
		"/dev/zero":         "read /dev/zero: not a regular file",
		large:               "read " + large + ": larger than 1048576 bytes",
	} {
		if _, err := files.NewValue(files.Options{}, joined, path); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
