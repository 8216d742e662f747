// Package cluster simulates everything that stands behind the coordinator: a
// gateway, its render service, its encode, prefill and decode workers, and an
// origin of images, in one http.Handler.
//
// It is as strict as the real parties are: it tokenizes deterministically,
// refuses in vLLM's error shape what vLLM would refuse, keeps a prompt's KV
// from prefill until a decode fetches it or its lease ends, and punishes a
// hand-off that is used twice with another request's text. Images are what their
// bytes are: each has a hash and placeholder tokens, and an answer mentions it, so
// that mixed-up images show. It records each leg
// it saw and counts what it still holds, so that a test can say that nothing
// leaked. Faults (see [Fault]) and gates (see [Gate]) make it fail, or stand
// still, at a chosen place.
//
// It is not a model and not a scheduler: answers are the prompt said back, and
// there is one worker of each kind with endless capacity.
//
// The package shares no code with the rest of the module on purpose: the
// coordinator and its counterpart must not be able to share one misreading of
// the wire format. For the same reason it reads JSON with encoding/json only, once
// large images are out of it.
package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Names of the legs the cluster serves. Unknown is a call to a worker route
// that names no profile, or one that the cluster does not have.
// Probe is a decode that is only wanted if the prompt is cached; Origin is the
// download of an image, which is no leg of the pipeline but counts like one here.
const (
	Render  = "render"
	Probe   = "probe"
	Encode  = "encode"
	Prefill = "prefill"
	// Reserve is a call by which the gateway chooses a prefill worker.
	Reserve = "reserve"
	Decode  = "decode"
	Origin  = "origin"
	Unknown = "unknown"
)

// Values of [Options.KV].
const (
	KVNixl          = "kv-nixl"
	KVSharedStorage = "kv-shared-storage"
	// KVSGLang is a pair of SGLang's workers: each waits for the other in the room
	// that both legs name, prefill answers once decode has fetched the KV, and both
	// get the same body. They have no generate route.
	KVSGLang = "kv-sglang"
)

// Values of [Options.EC].
const (
	ECNixl          = "ec-nixl"
	ECSharedStorage = "ec-shared-storage"
)

// DefaultModel is the name of the model that is served unless
// [Options.Model] says another.
const DefaultModel = "demo-model"

// ErrClosed is what waiting calls return once the cluster was closed.
var ErrClosed = errors.New("cluster: closed")

// Options configure a [Cluster]. The zero value is a fast cluster with the
// defaults named at each field.
type Options struct {
	// Model is the one model that is served; others get 404. Default
	// DefaultModel.
	Model string
	// KV is how a prompt's KV travels from prefill to decode: KVNixl (the
	// default), KVSharedStorage, KVSGLang, KVLMCache, KVMooncake, KVMoriio or KVOffloading.
	KV string
	// PrefillAddress is the host:port of the prefill worker that other workers must
	// be told, where their connector wants that. Default: where the cluster listens.
	PrefillAddress string
	// EC is how an image's embedding travels from encode to prefill: ECNixl (the
	// default), ECSharedStorage or ECMooncake.
	EC string
	// GenerateParams is where workers read transfer params on the generate
	// route: GenerateParamsOld, GenerateParamsNew or GenerateParamsChecked (the
	// default).
	GenerateParams string
	// TensorBytes is the size of an image's pixels in render's kwargs_data.
	// Default 64.
	TensorBytes int
	// NoKwargs makes render leave kwargs_data out.
	NoKwargs bool
	// Metadata makes render answer mm_metadata, as newer versions do: the tensors
	// without their pixels.
	Metadata bool
	// NoResponsesRender has a render service that is too old for
	// /v1/responses/render.
	NoResponsesRender bool
	// PlainFeatures leaves out of render's placeholders the member that nobody
	// knows.
	PlainFeatures bool
	// CacheDecodes lets a prompt that was decoded to its end be cached, so that a
	// probe for it succeeds.
	CacheDecodes bool
	// Revisions are what the answers of legs say in x-llm-d-disagg-revision, by the
	// name of the leg, as an endpoint picker does that rolls out revisions. Legs that
	// are not in it say nothing.
	Revisions map[string]string
	// PromptIDs has decode workers take a prompt's token ids from
	// kv_transfer_params, where others would see an altered hand-off.
	PromptIDs bool
	// CachedTokens, if not 0, is what prefill says in its usage of how many tokens
	// of the prompt it had cached. A decode worker says then that all were if it was
	// to fetch the KV, and else the same. With 0 no usage says anything of it.
	CachedTokens int
	// ProfileHeader names the header that picks the worker. Default
	// "EPP-Profile".
	ProfileHeader string
	// WorkerHeader is the header by which the gateway names the prefill worker, with
	// KVSGLang: on answers to reserve calls, encodes, and probes that miss. Default
	// "X-Prefill-Worker".
	WorkerHeader string
	// TokenInterval is the time before each token of decode's answer. An
	// answer that is not streamed takes as long as its tokens do together.
	// 0 means no time at all.
	TokenInterval time.Duration
	// RenderDelay, EncodeDelay and PrefillDelay are how long these legs work. 0
	// means no time at all.
	RenderDelay  time.Duration
	EncodeDelay  time.Duration
	PrefillDelay time.Duration
	// Lease is how long prefill keeps KV that nobody fetches. Default 30s.
	Lease time.Duration
	// MaxRecorded bounds the record of legs (the oldest goes first), and
	// likewise how many used hand-offs, stored prompts, requests and so on are
	// remembered.
	// Default 10000.
	MaxRecorded int
	// OmitBodies leaves request bodies out of the record: for load tests,
	// where MaxRecorded large bodies would be too much.
	OmitBodies bool
}

func (o Options) withDefaults() Options {
	o.Model = cmp.Or(o.Model, DefaultModel)
	o.KV = cmp.Or(o.KV, KVNixl)
	o.EC = cmp.Or(o.EC, ECNixl)
	o.GenerateParams = cmp.Or(o.GenerateParams, GenerateParamsChecked)
	o.TensorBytes = cmp.Or(o.TensorBytes, 64)
	o.ProfileHeader = cmp.Or(o.ProfileHeader, "EPP-Profile")
	o.WorkerHeader = cmp.Or(o.WorkerHeader, "X-Prefill-Worker")
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.MaxRecorded = cmp.Or(o.MaxRecorded, 10000)
	return o
}

// Cluster is a simulated cluster. All its methods may be called at any time
// from any goroutine.
//
// It waits on channels and timers only and has no goroutine of its own (but
// for [Cluster.StartOn]'s server), so it can be used inside a testing/synctest
// bubble; create it in the bubble then.
type Cluster struct {
	options    Options
	engineID   string
	vocabulary *vocabulary
	control    http.Handler
	closing    chan struct{} // closed by Close; ends every wait

	// Close waits for these, in this order.
	serving sync.WaitGroup // the server's accept loop
	conns   sync.WaitGroup // the server's connections
	legs    sync.WaitGroup // requests in ServeHTTP
	leases  sync.WaitGroup // lease timers that were neither stopped nor ran out

	mu       sync.Mutex // guards all below, and the marked fields of Held and handoff
	closed   bool
	server   *http.Server
	url      string
	changed  chan struct{} // nil unless somebody waits; closed at the next change
	sequence int           // numbers arrivals and ends of legs
	lastID   int           // numbers faults, gates and hand-offs
	state    State
	record   record
	faults   []*activeFault
	gates    []*Held          // those that still hold
	gateByID map[string]*Held // all, until they are removed
	kv       ledger
	meetings meetings
	recent   [2]spoken // texts of the two newest prompts
	requests clientRequests
	media    mediaMemory
	cache    promptCache
	// responses are the words of what was stored, by id.
	responses map[string][]string
}

// Validate returns an error if an option has a value that is not known.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case o.KV != KVNixl && o.KV != KVSharedStorage && o.KV != KVSGLang && exchanges[o.KV] == nil:
		return fmt.Errorf("unknown KV connector %q", o.KV)
	case o.EC != ECNixl && o.EC != ECSharedStorage && o.EC != ECMooncake:
		return fmt.Errorf("unknown EC connector %q", o.EC)
	case o.GenerateParams != GenerateParamsOld && o.GenerateParams != GenerateParamsNew &&
		o.GenerateParams != GenerateParamsChecked:
		return fmt.Errorf("unknown place of transfer params %q", o.GenerateParams)
	case o.TensorBytes < 0:
		return fmt.Errorf("TensorBytes is %d", o.TensorBytes)
	}
	return nil
}

// New returns a cluster; it panics if options are not valid. Close it after use.
func New(options Options) *Cluster {
	if err := options.Validate(); err != nil {
		panic("cluster: " + err.Error())
	}
	options = options.withDefaults()
	c := &Cluster{
		options:    options,
		engineID:   "engine-" + rand.Text()[:8],
		vocabulary: newVocabulary(),
		closing:    make(chan struct{}),
		gateByID:   map[string]*Held{},
	}
	c.forget()
	c.control = c.controlRoutes()
	return c
}

// Handler returns the cluster as a handler for a server of the caller's. Give
// that server [ConnContext] too if [Fault.OnlyReused] is used, and close it
// before the cluster.
func (c *Cluster) Handler() http.Handler { return http.HandlerFunc(c.serve) }

// Start listens on addr and serves in the background. An addr without a host,
// such as ":0", means the loopback address. A cluster can be started once.
func (c *Cluster) Start(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("cluster: listen address: %w", err)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return c.StartOn(ln)
}

// StartOn is Start for a listener that exists already, such as a
// [PipeListener]. The cluster closes it, also when it returns an error.
func (c *Cluster) StartOn(ln net.Listener) error {
	server := &http.Server{
		Handler:           c.Handler(),
		ConnContext:       ConnContext,
		ConnState:         c.trackConn,
		ReadHeaderTimeout: 10 * time.Second,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.server != nil {
		ln.Close()
		return errors.New("cluster: started twice, or closed")
	}
	c.server = server
	c.url = "http://" + ln.Addr().String()
	c.serving.Go(func() { _ = server.Serve(ln) })
	return nil
}

// URL is where a started cluster answers, without a slash at the end; "" before
// Start.
func (c *Cluster) URL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.url
}

// Close lets go of everything: it breaks off legs that are under way, opens all
// gates, frees all KV, closes the listener and its connections, and returns when
// no goroutine of the cluster is left. It may be called more than once.
func (c *Cluster) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.closing)
		c.dropAllKV()
	}
	server := c.server
	c.mu.Unlock()

	if server != nil {
		_ = server.Close() // its only error is that of closing the listener
	}
	c.serving.Wait()
	c.conns.Wait()
	c.legs.Wait()
	c.leases.Wait()
}

// Reset puts the cluster back to its first state: no faults, no gates (open ones
// are released), nothing recorded, counted or held. Legs under way go on and
// stay counted as in flight.
func (c *Cluster) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, held := range c.gateByID {
		held.release()
	}
	clear(c.gateByID)
	c.faults = nil
	c.dropAllKV()
	inFlight := c.state.InFlight
	c.forget()
	c.state.InFlight = inFlight
	c.notify()
}

// forget begins with nothing recorded, counted or remembered. The caller holds
// mu, or is the only one to know the cluster.
func (c *Cluster) forget() {
	limit := c.options.MaxRecorded
	c.state = newState()
	c.record = newRecord(limit)
	c.kv = newLedger(limit)
	c.meetings = newMeetings(limit)
	c.recent = [2]spoken{}
	c.requests = newClientRequests(limit)
	c.media = newMediaMemory(limit)
	c.responses = map[string][]string{}
	c.cache = promptCache{prompts: newBounded[promptKey](limit)}
}

// enter counts a request in, so that Close waits for it; false once closed.
func (c *Cluster) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.legs.Add(1)
	return true
}

// pause waits for d, or for less if ctx or the cluster ends first.
func (c *Cluster) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	return await(ctx, c, timer.C)
}

// nextID returns a number not used before. The caller holds mu.
func (c *Cluster) nextID() int {
	c.lastID++
	return c.lastID
}
