// Package files reads certificates, CAs and credentials from files, and reads
// them again when the files change: they are renewed while a process runs.
//
// Nothing watches in the background. Whoever needs a value asks for it, and if
// the files were not looked at for a while they are looked at first. A file that
// cannot be read or makes no sense any more changes nothing: what was read
// before stays in use, and that is logged once. It is tried again until it can
// be read, so that two files of a pair may be replaced one after the other.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultEvery is how often files are looked at.
const DefaultEvery = 5 * time.Second

// maxSize bounds a file: a bundle of all CAs of the web is a quarter of it.
const maxSize = 1 << 20

// Options say how files are looked after.
type Options struct {
	// Log is told when files are read again or could not be; nil logs nothing.
	Log *slog.Logger
	// Every is how long files are left alone after they were looked at; 0 is
	// DefaultEvery, less than 0 looks each time.
	Every time.Duration
}

// Value is what was made of the content of files. It may be used by many
// goroutines.
type Value[T any] struct {
	paths []string
	parse func(contents [][]byte) (T, error)
	log   *slog.Logger
	every time.Duration

	current atomic.Pointer[T]
	began   time.Time
	due     atomic.Int64 // when to look again, as time since began

	mu     sync.Mutex // held while looking
	infos  []os.FileInfo
	failed string // the failure that was logged, if there was none since
}

// NewValue reads the files. parse makes a value of their contents, in the order
// of the paths; its errors are logged, so they must not quote the contents.
func NewValue[T any](o Options, parse func(contents [][]byte) (T, error), paths ...string) (*Value[T], error) {
	v := &Value[T]{paths: paths, parse: parse, log: o.Log, every: o.Every, began: time.Now()}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	if v.every == 0 {
		v.every = DefaultEvery
	}
	infos, err := v.stat()
	if err == nil {
		err = v.read(infos)
	}
	v.due.Store(int64(v.every))
	return v, err
}

// Get returns the value, of the files as they are or were a moment ago.
func (v *Value[T]) Get() T {
	if int64(time.Since(v.began)) >= v.due.Load() && v.mu.TryLock() {
		v.look()
		v.due.Store(int64(time.Since(v.began) + v.every))
		v.mu.Unlock()
	}
	return *v.current.Load()
}

// look reads the files again if they have changed.
func (v *Value[T]) look() {
	infos, err := v.stat()
	if err == nil {
		if v.failed == "" && !v.changed(infos) {
			return
		}
		err = v.read(infos)
	}
	switch names := strings.Join(v.paths, ", "); {
	case err == nil:
		v.failed = ""
		v.log.Info("read again, for it has changed", "file", names)
	case err.Error() != v.failed:
		v.failed = err.Error()
		v.log.Warn("could not be read again: what was read before stays in use", "file", names, "error", v.failed)
	}
}

// read reads the files and makes them the current value. infos were taken
// before: what is written meanwhile is found to have changed the next time.
func (v *Value[T]) read(infos []os.FileInfo) error {
	contents := make([][]byte, len(v.paths))
	for i, path := range v.paths {
		var err error
		if contents[i], err = readFile(path); err != nil {
			return err
		}
	}
	value, err := v.parse(contents)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(v.paths, ", "), err)
	}
	v.current.Store(&value)
	v.infos = infos
	return nil
}

// stat looks at the files, through links: Kubernetes replaces links, not files.
func (v *Value[T]) stat() ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(v.paths))
	for i, path := range v.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, &os.PathError{Op: "read", Path: path, Err: errNotRegular}
		}
		infos[i] = info
	}
	return infos, nil
}

func (v *Value[T]) changed(infos []os.FileInfo) bool {
	for i, now := range infos {
		before := v.infos[i]
		if !now.ModTime().Equal(before.ModTime()) || now.Size() != before.Size() || !os.SameFile(now, before) {
			return true
		}
	}
	return false
}

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = fmt.Errorf("larger than %d bytes", maxSize)
)

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(f, maxSize+1)); err != nil {
		return nil, err
	}
	if b.Len() > maxSize {
		return nil, &os.PathError{Op: "read", Path: path, Err: errTooLarge}
	}
	return b.Bytes(), nil
}
