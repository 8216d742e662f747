package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// accompanying are the files that go with the binary: patterns from the root.
var accompanying = []string{"LICENSE", "CHANGELOG.md", "conf/coordinator.toml", "conf/examples/*.toml"}

// file is a file of an archive.
type file struct {
	// Name is its path in the archive, below the archive's own directory.
	Name string
	// Path is where it is.
	Path string
	Mode int64
}

// contents lists the files of an archive.
func (r *release) contents(binary string) ([]file, error) {
	files := []file{{Name: program, Path: binary, Mode: 0o755}}
	for _, pattern := range accompanying {
		found, err := filepath.Glob(filepath.Join(r.Root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, &os.PathError{Op: "find", Path: pattern, Err: os.ErrNotExist}
		}
		for _, path := range found {
			name, err := filepath.Rel(r.Root, path)
			if err != nil {
				return nil, err
			}
			files = append(files, file{Name: filepath.ToSlash(name), Path: path, Mode: 0o644})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// archive writes an archive, all of whose files are in one directory. Owners,
// modes and times are not those of the files.
func (r *release) archive(path, dir string, files []file) error {
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, gzip.BestCompression) // its header has no name and no time
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	for _, f := range files {
		text, err := os.ReadFile(f.Path)
		if err != nil {
			return err
		}
		head := &tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: dir + "/" + f.Name, Mode: f.Mode,
			Size: int64(len(text)), ModTime: r.Time}
		if err := archive.WriteHeader(head); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
