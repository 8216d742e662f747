package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// server is something that is measured, or that stands behind what is.
type server struct {
	url   string
	admin string // of a coordinator
	pid   int
	stop  func() // and waits until it has ended
}

// servers starts what a measurement needs.
type servers interface {
	backend(ctx context.Context, interval time.Duration) (*server, error)
	relay(ctx context.Context, up string, flags ...string) (*server, error)
	coordinator(ctx context.Context, up string, openAI bool) (*server, error)
}

// processes are servers that are processes of their own, with ports of loopback
// that are free. They are ended by their handles.
type processes struct {
	floorPath, coordinatorPath string
	dir                        string    // for configurations and logs
	stderr                     io.Writer // of floors; nil is nowhere
	count                      int
}

var _ servers = (*processes)(nil)

// tensorBytes is the size of a rendered tensor.
const tensorBytes = 1_000_000

func (p *processes) backend(ctx context.Context, interval time.Duration) (*server, error) {
	return p.floor(ctx, "backend", "-tensor-bytes", fmt.Sprint(tensorBytes), "-interval", interval.String())
}

func (p *processes) relay(ctx context.Context, up string, flags ...string) (*server, error) {
	return p.floor(ctx, append([]string{"relay", "-up", up}, flags...)...)
}

// command is a process that ends with SIGTERM, or is killed if it does not.
func command(ctx context.Context, path string, args ...string) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd, cancel
}

// floor starts a floor, which prints its URL.
func (p *processes) floor(ctx context.Context, args ...string) (*server, error) {
	cmd, cancel := command(ctx, p.floorPath, args...)
	cmd.Stderr = p.stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	s := &server{url: strings.TrimSpace(url), pid: cmd.Process.Pid, stop: func() {
		cancel()
		_ = cmd.Wait() // its error is that it was ended
	}}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("%s did not start", p.floorPath)
	}
	return s, nil
}

// config is a coordinator's: what the file has by default, but for where things
// are, the connectors, and enough places for the streams that are held.
const config = `
[server]
listen_addr = %[1]q
shutdown_timeout = "2s"
[admin]
listen_addr = %[2]q
[gateway]
address = %[3]q
[actors.pools]
decode = { size = 6000, queue = 256 }
[pipeline]
kv_connector = "kv-nixl"
ec_connector = "ec-nixl"
use_openai_format = %[4]t
[[pipeline.steps]]
type = "replace-media-urls"
[[pipeline.steps]]
type = "render"
params = { address = %[3]q }
[[pipeline.steps]]
type = "encode"
[[pipeline.steps]]
type = "prefill"
[[pipeline.steps]]
type = "decode"
`

func (p *processes) coordinator(ctx context.Context, up string, openAI bool) (*server, error) {
	public, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p.count++
	name := filepath.Join(p.dir, fmt.Sprintf("coordinator-%d", p.count))
	if err := os.WriteFile(name+".toml", fmt.Appendf(nil, config, public, admin, up, openAI), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(name + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd, cancel := command(ctx, p.coordinatorPath, "serve", "-config", name+".toml")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	s := &server{url: "http://" + public, admin: "http://" + admin, pid: cmd.Process.Pid, stop: func() { cancel(); <-ended }}
	if err := ready(ctx, s.url, ended); err != nil {
		s.stop()
		text, _ := os.ReadFile(name + ".log")
		return nil, fmt.Errorf("%s: %w; its log ends with: %s", p.coordinatorPath, err, text[max(0, bytes.LastIndexByte(bytes.TrimSpace(text), '\n')):])
	}
	return s, nil
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// ready waits until a server answers that it is alive, or has ended.
func ready(ctx context.Context, url string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if _, err := get(ctx, url+"/healthz"); err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return errors.New("it did not start in time")
		}
	}
}

// get returns the body of a good answer. The connection is not kept.
func get(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %d", url, answer.StatusCode)
	}
	return text.Bytes(), nil
}
