package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/cmd/plan"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/loadtest/load"
	"github.com/llm-coordinator/coordinator/loadtest/report"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

// rest is a configuration but for its [actors].
const rest = `
[server]
shutdown_timeout = "2s"
[gateway]
address = %[1]q
[pipeline]
kv_connector = "kv-nixl"
ec_connector = "ec-nixl"
[[pipeline.steps]]
type = "render"
params = { address = %[1]q }
[[pipeline.steps]]
type = "encode"
[[pipeline.steps]]
type = "prefill"
[[pipeline.steps]]
type = "decode"
`

// loaded runs a coordinator as a configuration says, under load, and returns the
// report that loadtest/run would write.
func loaded(t *testing.T, text string, o load.Options) (*conf.Config, *report.File) {
	t.Helper()
	cfg, err := conf.Parse("test", []byte(text), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c, err := assembly.New(cfg, assembly.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, listeners[0], listeners[1])
		ended <- err
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	watch, err := scrape.Begin(ctx, "http://"+listeners[1].Addr().String()+"/metrics", 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	o.URL = "http://" + listeners[0].Addr().String()
	r, err := load.Run(ctx, o)
	figures := watch.Stop()
	if err != nil {
		t.Fatal(err)
	}
	return cfg, &report.File{Report: r, Coordinator: figures}
}

// plannedFrom answers a question from a report, as `coordinator plan -from` does.
func plannedFrom(t *testing.T, r *report.File, q plan.Question, cfg *conf.Config) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := plan.FromReport("report.json", text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(q, cfg, "small.toml", seen)
	if err != nil {
		t.Fatal(err)
	}
	var planned strings.Builder
	if err := p.Write(&planned); err != nil {
		t.Fatal(err)
	}
	return planned.String()
}

// TestAPlanHoldsTheRate: a coordinator whose pools are too small refuses requests. One
// with the sizes that are planned from its report serves all, at the same rate.
func TestAPlanHoldsTheRate(t *testing.T) {
	if testing.Short() {
		t.Skip("!!! LEFT OUT: load for some seconds (not with -short)")
	}
	workers := cluster.New(cluster.Options{TokenInterval: 20 * time.Millisecond, PrefillDelay: 20 * time.Millisecond,
		EncodeDelay: 10 * time.Millisecond, OmitBodies: true})
	defer workers.Close()
	if err := workers.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	steps := fmt.Sprintf(rest, workers.URL())
	const rate, all = 10, 250
	o := load.Options{Request: load.Request{Stream: true, MaxTokens: 20, Images: 1, ImageBytes: 400}, Rate: rate, Count: 40,
		Duration: time.Minute, Grace: time.Minute}
	// Seconds of waiting: it is counted who is refused, and the machine may be slow.
	q := plan.Question{Rate: rate, Replicas: 1, Sigmas: 3, Margin: 1.15, Wait: 10 * time.Second}
	cfg, small := loaded(t, "[actors.pools]\ndecode = { size = 2, queue = 0 }\n"+steps, o)
	if small.Counts.OK == 0 || small.Codes["queue_full"] == 0 || len(small.Coordinator.Shed) == 0 {
		t.Fatalf("nothing was refused: %+v %v", small.Counts, small.Coordinator.Shed)
	}
	planned := plannedFrom(t, small, q, cfg)
	for _, want := range []string{"520 tokens (measured)", "1 images (measured)", "with the sizes in small.toml", "<- first  too little"} {
		if !strings.Contains(planned, want) {
			t.Errorf("no %q", want)
		}
	}
	o.Count = all
	cfg, held := loaded(t, planned+steps, o)
	if c := held.Counts; c.OK != c.Begun || c.Begun != all || len(held.Coordinator.Shed) != 0 {
		t.Errorf("%+v, refused: %v", c, held.Coordinator.Shed)
	}
	if in := cfg.Actors.Inflight(); in >= all {
		t.Errorf("room for %d requests: all that there are, so that none could be refused", in)
	}
	if t.Failed() {
		t.Log(planned)
	}
}
