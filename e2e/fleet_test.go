package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
	"github.com/llm-coordinator/coordinator/transport/porttest"
)

// Steps of pipelines. RENDER are the params of the render step.
const (
	mediaStep       = "[[pipeline.steps]]\ntype = \"replace-media-urls\"\nparams = { allowed_networks = [\"127.0.0.0/8\"], max_download_size = 20 }\n"
	renderStep      = "[[pipeline.steps]]\ntype = \"render\"\nparams = { RENDER }\n"
	conditionalStep = "[[pipeline.steps]]\ntype = \"conditional-decode\"\n"
	encodeStep      = "[[pipeline.steps]]\ntype = \"encode\"\n"
	prefillStep     = "[[pipeline.steps]]\ntype = \"prefill\"\n"
	decodeStep      = "[[pipeline.steps]]\ntype = \"decode\"\n"
	wholeSteps      = mediaStep + renderStep + encodeStep + prefillStep + decodeStep
	probingSteps    = mediaStep + renderStep + conditionalStep + encodeStep + prefillStep + decodeStep
)

// plan says what a fleet is like. Its zero value is the whole pipeline over NIXL.
type plan struct {
	steps string // of the pipeline, default wholeSteps
	// tokensIn: use_openai_format = false
	tokensIn bool
	server   string // further settings of the listener
	render   string // further params of the render step
	tables   string // further tables of the coordinators' file
	cluster  cluster.Options
	// networks are those that the gateway takes legs from, default the
	// coordinators'.
	networks string
	// decode, if set, are the decode workers instead of the cluster's.
	decode http.Handler
}

// fleet is a gateway with all that is behind it, and clients in front.
type fleet struct {
	t        *testing.T
	ctx      context.Context // ends a test that hangs
	dir      string
	plan     plan
	cluster  *cluster.Cluster
	workers  map[string][]*worker // by role
	replicas []*replica
	url      string // of the gateway
	client   *http.Client
}

// startFleet starts all and waits until the gateway serves.
func startFleet(t *testing.T, g gateway, p plan) *fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	p.steps = cmp.Or(p.steps, wholeSteps)
	f := &fleet{t: t, ctx: ctx, dir: t.TempDir(), plan: p, cluster: cluster.New(p.cluster), client: newClient(clientDialer.DialContext)}
	t.Cleanup(f.cluster.Close)
	if err := f.cluster.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.startWorkers()
	t.Cleanup(f.client.CloseIdleConnections)
	l := layout{listen: porttest.FreeAddr(t), networks: cmp.Or(p.networks, "127.0.0.1/32"), workers: map[string][]string{}}
	f.url = "http://" + l.listen
	for role, workers := range f.workers {
		for _, w := range workers {
			l.workers[role] = append(l.workers[role], w.address)
		}
	}
	for i := range 2 {
		f.replicas = append(f.replicas, &replica{name: fmt.Sprintf("coordinator-%d", i+1), address: porttest.FreeAddr(t), admin: porttest.FreeAddr(t)})
		l.coordinators = append(l.coordinators, f.replicas[i].address)
		f.startReplica(f.replicas[i])
	}
	awaitOK(ctx, t, f.client, f.url+"/readyz", g.start(t, f.dir, l))
	return f
}

// worker is a server for one role: whatever else reaches it is a mistake of the
// gateway.
type worker struct {
	address string
	legs    atomic.Int64
}

func (f *fleet) startWorkers() {
	f.workers = map[string][]*worker{}
	for _, role := range []string{cluster.Encode, cluster.Prefill, cluster.Decode} {
		work := f.cluster.Handler()
		if role == cluster.Decode && f.plan.decode != nil {
			work = f.plan.decode
		}
		for range 2 {
			f.workers[role] = append(f.workers[role], f.startWorker(role, work))
		}
	}
}

func (f *fleet) startWorker(role string, work http.Handler) *worker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	w := &worker{address: l.Addr().String()}
	server := &http.Server{ConnContext: cluster.ConnContext, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health":
			return // 200
		case r.Header.Get("EPP-Profile") != role:
			f.t.Errorf("a worker for %s got %s %s with the profile %q", role, r.Method, r.URL.Path, r.Header.Get("EPP-Profile"))
			http.Error(rw, "not mine", http.StatusMisdirectedRequest)
		default:
			w.legs.Add(1)
			work.ServeHTTP(rw, r)
		}
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // until it is closed
	}()
	f.t.Cleanup(func() {
		server.Close()
		<-served
	})
	return w
}

// replica is a coordinator.
type replica struct {
	*process
	name, address, admin string
}

// startReplica starts a replica, or starts it again, and waits until it is ready.
func (f *fleet) startReplica(r *replica) {
	f.t.Helper()
	program, err := coordinatorProgram()
	if err != nil {
		f.t.Fatal(err)
	}
	file := filepath.Join(f.dir, r.name+".toml")
	render := fmt.Sprintf("address = %q", f.cluster.URL())
	if f.plan.render != "" {
		render += ", " + f.plan.render
	}
	text := fmt.Sprintf("[server]\nlisten_addr = %q\nshutdown_timeout = \"10s\"\n%s[admin]\nlisten_addr = %q\n[gateway]\naddress = %q\n%s"+
		"[pipeline]\nkv_connector = \"kv-nixl\"\nec_connector = \"ec-nixl\"\nuse_openai_format = %t\n%s",
		r.address, f.plan.server, r.admin, f.url, f.plan.tables, !f.plan.tokensIn, strings.ReplaceAll(f.plan.steps, "RENDER", render))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	r.process = startProcess(f.t, f.dir, r.name, nil, program, "serve", "-config", file)
	awaitOK(f.ctx, f.t, f.client, "http://"+r.address+"/readyz", r.process)
}

// metrics reads what a replica says of itself.
func (f *fleet) metrics(r *replica) *scrape.Snapshot {
	f.t.Helper()
	page, err := scrape.Get(f.ctx, f.client, "http://"+r.admin+"/metrics")
	if err != nil {
		f.t.Fatalf("metrics of %s: %v", r.name, err)
	}
	return page
}

// metric returns the sum of a replica's counter or gauge.
func (f *fleet) metric(r *replica, name string) float64 {
	f.t.Helper()
	return f.metrics(r).Values(name, "")[""]
}

// settled waits until nothing is left of any request, and checks that the workers
// were asked for nothing odd.
func (f *fleet) settled() {
	f.t.Helper()
	if err := f.cluster.Wait(f.ctx, cluster.State.Idle); err != nil {
		f.t.Fatalf("the cluster is not idle: %v: %+v", err, f.cluster.State())
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for _, r := range f.replicas {
		for f.metric(r, "request_running") != 0 {
			select {
			case <-again.C:
			case <-f.ctx.Done():
				f.t.Fatalf("%s has requests left", r.name)
			}
		}
	}
	if s := f.cluster.State(); s.ViolationCount+s.FailedLoads+s.ReusedHandoffs+s.LocalEncodes+s.WorkerFetches != 0 {
		f.t.Errorf("the cluster saw what should not be: %+v", s)
	}
}
