package check

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// image is what the Dockerfile makes, laid out in a directory instead.
type image struct {
	root       string   // its files
	user       string   // uid:gid
	entrypoint []string // the program, as a path below root
	command    []string // its arguments unless others are given
}

// binary is the program of the image, as a path of this machine.
func (i *image) binary() string { return filepath.Join(i.root, i.entrypoint[0]) }

// instruction is one of a Dockerfile.
type instruction struct{ word, rest string }

func instructions(text string) (list []instruction) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		list = append(list, instruction{word, strings.TrimSpace(rest)})
	}
	return list
}

// layOut does what the Dockerfile says, in dir: the build in a copy of what the
// engine would be sent, the image's files below root. What it does not know it
// refuses, so that nothing is left out of the check unseen.
func layOut(dockerfile, ignore, dir string, args map[string]string) (*image, error) {
	l := &layout{context: filepath.Join(dir, "context"), image: image{root: filepath.Join(dir, "root")}, args: args}
	if err := os.Mkdir(l.image.root, 0o755); err != nil {
		return nil, err
	}
	if err := copyContext(repository, ignore, l.context); err != nil {
		return nil, err
	}
	for _, i := range instructions(dockerfile) {
		if err := l.do(i); err != nil {
			return nil, fmt.Errorf("%s %s: %w", i.word, i.rest, err)
		}
	}
	return &l.image, nil
}

// layout is how far a Dockerfile has been followed. In the build stage the working
// folder is the context: COPY . . makes them equal.
type layout struct {
	image   image
	context string
	stage   string // "build", or "" in the last
	workdir string // of the build stage
	args    map[string]string
}

var from = regexp.MustCompile(`^(\S+)(?: AS (\w+))?$`)

func (l *layout) do(i instruction) error {
	switch i.word {
	case "FROM":
		m := from.FindStringSubmatch(i.rest)
		if m == nil || m[2] == "" && m[1] != "scratch" {
			return fmt.Errorf("a stage that is neither named nor empty")
		}
		l.stage = m[2]
		return nil
	case "WORKDIR":
		l.workdir = i.rest
		return nil
	case "ARG":
		return nil // run has their values
	case "COPY":
		return l.copy(strings.Fields(i.rest))
	case "RUN":
		return l.run(i.rest)
	case "USER":
		l.image.user = i.rest
		return nil
	case "EXPOSE":
		return nil // compared with the configuration
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(i.rest), &l.image.entrypoint)
	case "CMD":
		return json.Unmarshal([]byte(i.rest), &l.image.command)
	}
	return fmt.Errorf("not an instruction that is known here")
}

func (l *layout) copy(words []string) error {
	if l.stage != "" {
		for _, source := range words[:len(words)-1] {
			if _, err := os.Stat(filepath.Join(l.context, source)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(words) != 3 || words[0] != "--from=build" {
		return fmt.Errorf("the last stage takes files from the build only")
	}
	source := words[1] // of the machine, for what came with the image of the build
	if inside, ok := strings.CutPrefix(source, l.workdir+"/"); ok {
		source = filepath.Join(l.context, inside)
	}
	return copyFile(source, filepath.Join(l.image.root, words[2]))
}

// modDownload is the command that is there for the engine's cache only.
const modDownload = "go mod download"

func (l *layout) run(line string) error {
	if line == modDownload {
		return nil // the build does what is needed of it
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = l.context
	cmd.Env = os.Environ()
	for name, value := range l.args {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// copyFile copies what a file says and whether it can be run. Nobody but its owner
// may write to the copy, or to the folders that it is put in.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm()&0o755)
}
