package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/server"
)

// demoConfig is the configuration of a demo, but for the cluster's address and the
// step of requests that may wait.
const demoConfig = `
log_level  = 1
log_format = "text"
[server]
shutdown_timeout = "500ms"
[gateway]
address = %[1]q
[pipeline]
kv_connector = %[3]q
ec_connector = "ec-nixl"
%[2]s[[pipeline.steps]]
type = "replace-media-urls"
params = { allowed_networks = ["127.0.0.0/8"] }
[[pipeline.steps]]
type = "render"
params = { address = %[1]q }
[[pipeline.steps]]
type = "encode"
%[4]s`

// demoSteps are the last steps of a demo, by the kv connector of its workers.
var demoSteps = map[string]string{
	cluster.KVNixl: "[[pipeline.steps]]\ntype = \"prefill\"\n[[pipeline.steps]]\ntype = \"decode\"\n",
	cluster.KVSGLang: "[[pipeline.steps]]\ntype = \"prefill-decode\"\n" +
		"params = { bootstrap_from = \"reserve\", bootstrap_header = \"x-prefill-worker\" }\n",
}

// demo runs a coordinator and a simulated cluster in one process.
func demo(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	fs := flags("demo", stderr)
	addr := fs.String("addr", "127.0.0.1:8080", "`address` for clients; a free port is taken if it is in use")
	ops := fs.String("admin", "127.0.0.1:9090", "`address` for operators; a free port is taken if it is in use")
	interval := fs.Duration("token-interval", 60*time.Millisecond, "pause between two tokens")
	kv := fs.String("kv", cluster.KVNixl, "kv `connector` of the workers: kv-nixl or kv-sglang")
	async := fs.Bool("async", false, "serve requests that may wait too (docs/async.md), with a small broker")
	redis := fs.String("redis", "", "`URL` of a Redis for -async, instead of one in this process")
	if err := parse(fs, args); err != nil {
		return err
	}
	steps, ok := demoSteps[*kv]
	if !ok {
		return fmt.Errorf("-kv: there is no demo of %q: kv-nixl or kv-sglang", *kv)
	}
	workers := cluster.New(cluster.Options{KV: *kv, TokenInterval: *interval, EncodeDelay: 10 * time.Millisecond, PrefillDelay: 20 * time.Millisecond})
	defer workers.Close()
	if err := workers.Start("127.0.0.1:0"); err != nil {
		return err
	}
	room, err := openWaitingRoom(*async, *redis)
	if err != nil {
		return err
	}
	defer room.close()
	cfg, err := conf.Parse("demo", fmt.Appendf(nil, demoConfig, workers.URL(), room.step(), *kv, steps), environ)
	if err != nil {
		return err
	}
	log, _ := logger(cfg, stderr)
	muzzle(log)
	c, err := assembly.New(cfg, assembly.Options{Log: log, Version: version(), LookupEnv: lookupIn(environ)})
	if err != nil {
		return err
	}
	public, operators, err := demoListeners(*addr, *ops)
	if err != nil {
		c.Close()
		return err
	}
	stop, err := room.serve(ctx, public.Addr())
	if err != nil {
		c.Close()
		return errors.Join(err, public.Close(), operators.Close())
	}
	defer stop()
	out := &lines{to: stdout}
	c.OnFinished(func(r server.Record) { out.print(demoLine(r)) })
	printWelcome(stdout, public.Addr(), operators.Addr(), workers, room)
	_, err = c.Run(ctx, public, operators) // what a demo cuts is no failure
	return err
}

// demoListeners listens on two addresses, or on free ports of their hosts.
func demoListeners(public, ops string) (net.Listener, net.Listener, error) {
	p, err := listenNear(public)
	if err != nil {
		return nil, nil, err
	}
	o, err := listenNear(ops)
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	return p, o, nil
}

func listenNear(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	host, _, splitErr := net.SplitHostPort(addr)
	if splitErr != nil {
		return nil, err
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

func printWelcome(w io.Writer, public, ops net.Addr, workers *cluster.Cluster, room *waitingRoom) {
	curl := func(path, body string) {
		fmt.Fprintf(w, "curl -sN http://%s%s -H 'Content-Type: application/json' -d '%s'\n", public, path, body)
	}
	const model = cluster.DefaultModel
	fmt.Fprintf(w, "coordinator on http://%s, simulated cluster on %s\n", public, workers.URL())
	fmt.Fprintf(w, "operators' page on http://%s/, metrics on http://%[1]s/metrics\n", ops)
	fmt.Fprintf(w, "model: %s\n\nTry, in another terminal:\n\n", model)
	curl("/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"Why is the sky blue?"}]}`)
	curl("/v1/chat/completions", `{"model":"`+model+`","stream":true,"messages":[{"role":"user","content":"Count the stars above the desert tonight, one by one."}]}`)
	curl("/v1/completions", `{"model":"`+model+`","prompt":"Once upon a time"}`)
	// One image that the coordinator downloads, and one that the client has inlined.
	curl("/v1/chat/completions", `{"model":"`+model+`","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"Compare these two."},`+
		`{"type":"image_url","image_url":{"url":"`+workers.ImageURL("sunset.png", cluster.ImageOptions{Bytes: 50_000})+`"}},`+
		`{"type":"image_url","image_url":{"url":"data:image/gif;base64,`+base64.StdEncoding.EncodeToString(cluster.ImageBytes("dot.gif", 0))+`"}}]}]}`)
	room.printWelcome(w, public)
	fmt.Fprintf(w, "\nCtrl-C ends it. One line for each request:\n")
}

// lines writes whole lines for many goroutines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) print(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.to, line)
}

// demoLine is the line of one request: what it was, the way that it went, and
// how long each part took.
func demoLine(r server.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %s", time.Now().Format("15:04:05"), r.Status, r.Protocol)
	if r.Stream {
		b.WriteString(" streamed")
	}
	sep := ": "
	for _, st := range r.Steps {
		fmt.Fprintf(&b, "%s%s %s", sep, st.Phase, ms(st.Ended.Sub(st.Began)))
		sep = " > "
	}
	fmt.Fprintf(&b, "; first byte %s, total %s, %d bytes", ms(r.FirstByte), ms(r.Total), r.Bytes)
	if r.Code != "" {
		fmt.Fprintf(&b, ", %s", r.Code)
	}
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond)) }
