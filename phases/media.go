package phases

import (
	"context"
	"net/netip"
	"time"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/media"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepMedia = "replace-media-urls"

func init() { Register(stepMedia, NewMedia) }

// MediaParams are the parameters of a replace-media-urls step.
type MediaParams struct {
	// DownloadTimeout of one medium, redirects included.
	DownloadTimeout time.Duration `toml:"download_timeout"`
	// MaxConcurrentDownloads of one request.
	MaxConcurrentDownloads int `toml:"max_concurrent_downloads"`
	// MaxMultimodalEntries of one request; 0 is no limit.
	MaxMultimodalEntries int `toml:"max_multimodal_entries"`
	// MaxDownloadSize of one image, in MB of 2^20 bytes, unless
	// MaxImageDownloadSize, which is the newer name, is more than 0.
	MaxDownloadSize      int `toml:"max_download_size"`
	MaxImageDownloadSize int `toml:"max_image_download_size"`
	MaxAudioDownloadSize int `toml:"max_audio_download_size"`
	MaxVideoDownloadSize int `toml:"max_video_download_size"`
	// AllowedImageContentTypes and those of the other modalities are the types that
	// are served; none: the modality is not.
	AllowedImageContentTypes []string `toml:"allowed_image_content_types"`
	AllowedAudioContentTypes []string `toml:"allowed_audio_content_types"`
	AllowedVideoContentTypes []string `toml:"allowed_video_content_types"`
	// AllowPrivateNetworks lets RFC 1918 addresses through the guard.
	AllowPrivateNetworks bool `toml:"allow_private_networks"`
	// AllowedNetworks are CIDRs let through whatever the guard says.
	AllowedNetworks []string `toml:"allowed_networks"`
	// AllowedDomains are the only hosts; empty is all.
	AllowedDomains []string `toml:"allowed_domains"`
	// CacheSize is how many MB of media are kept for later requests; 0 is none.
	CacheSize int `toml:"cache_size"`
	// CacheTTL is how long one is kept.
	CacheTTL time.Duration `toml:"cache_ttl"`
}

// mediaPhase downloads the images, audio files and videos that a chat request
// names by URL, and puts them in the URLs' place as data URIs; what came inlined
// is checked.
// After it nobody behind us fetches anything that a client has named.
//
// Requests share their downloads. A URL's first request leads: its task runs in
// the media pool. Those that come while it does await the same download, which
// takes no worker. A request leads no more URLs than it may have tasks at work,
// so that nobody waits for a task that is not handed out yet. Of the URLs beyond
// that those which nobody has under way get tasks that look again when they run:
// one that finds another's download then hands its worker back, and the phase is
// run again to await it.
type mediaPhase struct {
	flights     *media.Flights
	parallel    int
	maxEntries  int
	allowed     [wire.Modalities]media.Allowed
	kept        int64
	patience    time.Duration
	description string
	metrics     *Metrics
}

// NewMedia builds a replace-media-urls phase.
func NewMedia(deps Deps, params Params) (Phase, error) {
	p := DefaultMediaParams()
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	if err := p.check(params); err != nil {
		return nil, err
	}
	allowed, err := p.allowed(params)
	if err != nil {
		return nil, err
	}
	s := media.Settings{Timeout: p.DownloadTimeout, Allowed: allowed,
		AllowPrivateNetworks: p.AllowPrivateNetworks, AllowedDomains: p.AllowedDomains}
	for _, cidr := range p.AllowedNetworks {
		network, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, params.Errorf("allowed_networks", "%q is not a network such as 10.1.2.0/24", cidr)
		}
		s.AllowedNetworks = append(s.AllowedNetworks, network)
	}
	fetcher, err := media.NewFetcher(s)
	if err != nil {
		return nil, params.Errorf("allowed_domains", "%v", err)
	}
	flights := media.NewFlights(fetcher, media.FlightSettings{
		CacheSize: int64(p.CacheSize) << 20, CacheTTL: p.CacheTTL, Memory: deps.Memory,
		Landed: func(m wire.Modality, took time.Duration, err error) {
			result := "ok"
			if err != nil {
				result = wire.FaultOf(err).ErrorCode()
			}
			deps.Metrics.downloads.WithLabelValues(result, m.String()).Observe(took.Seconds())
		},
	})
	deps.OnClose(flights.Close)
	deps.OnClose(fetcher.Close)
	return &mediaPhase{flights: flights, parallel: p.MaxConcurrentDownloads, maxEntries: p.MaxMultimodalEntries,
		allowed: allowed, kept: int64(p.CacheSize) << 20, patience: s.Timeout, metrics: deps.Metrics, description: p.describe(allowed)}, nil
}

func (p *mediaPhase) Name() string { return stepMedia }

// Pool is the one that operators see beside the phase.
func (p *mediaPhase) Pool() string { return PoolMedia }

// Patience returns how long a download may take.
func (p *mediaPhase) Patience() time.Duration { return p.patience }

// Kept returns how many bytes of media are kept for later requests at most.
func (p *mediaPhase) Kept() int64 { return p.kept }

// String describes the phase for operators.
func (p *mediaPhase) String() string { return p.description }

// fetching is what a request has under way.
type fetching struct {
	journal *journal.Journal
	seats   media.Seats // one for each distinct URL
	uris    [][]byte    // by medium; nil where there is none (yet)
	// shared are media whose downloads a task found to be another request's.
	shared []*wanted
}

// leave gives up what is under way, if anything is.
func (f *fetching) leave() {
	if f != nil {
		f.seats.Leave()
	}
}

// wanted is a URL and the media of a request that have it. As a result it is
// one that another request is downloading.
type wanted struct {
	seat  *media.Seat
	items []int
}

// inlined is the result for a URL: its media get this data URI.
type inlined struct {
	items []int
	uri   []byte
}

// Plan makes one task for each distinct URL, and one that checks all media
// that came inlined.
func (p *mediaPhase) Plan(r *Request) (Plan, error) {
	m := r.Prompt.Media
	if m.Len() == 0 {
		return Plan{}, nil
	}
	if p.maxEntries > 0 && m.Len() > p.maxEntries {
		return Plan{}, wire.Faultf(wire.LimitExceeded, "the request has %d images, audio files and videos, more than the limit of %d", m.Len(), p.maxEntries)
	}
	for k := range wire.Modalities {
		if m.Count(k) > 0 {
			if err := p.allowed[k].Unserved(); err != nil {
				return Plan{}, err
			}
		}
	}
	plan := Plan{MaxParallel: p.parallel}
	if f := r.fetching; f != nil { // run again
		for _, w := range f.shared {
			plan.Tasks = append(plan.Tasks, f.await(w))
		}
		f.shared = nil
		return plan, nil
	}
	all, given := p.distinct(m)
	f := &fetching{journal: r.Journal, uris: make([][]byte, m.Len())}
	for _, w := range all {
		f.seats = append(f.seats, w.seat)
	}
	r.fetching = f // before a seat is taken: whatever happens now, it is left
	// Those that others may wait for come first, those that hold no worker last.
	var later, awaited []Task
	for _, w := range all {
		switch found := w.seat.Join(len(plan.Tasks) < p.parallel); found {
		case media.Nowhere:
			later = append(later, p.look(f, w))
		case media.Hit, media.Shared:
			p.count(w, found)
			awaited = append(awaited, f.await(w))
		default:
			p.count(w, found)
			plan.Tasks = append(plan.Tasks, f.lead(w))
		}
	}
	if len(given) > 0 {
		plan.Tasks = append(plan.Tasks, p.check(m, given))
	}
	plan.Tasks = append(append(plan.Tasks, later...), awaited...)
	return plan, nil
}

// distinct returns the distinct URLs of media, in order, and the media that came
// inlined.
func (p *mediaPhase) distinct(m *wire.Media) (all []*wanted, given []int) {
	type wish struct {
		modality wire.Modality
		url      string
	}
	at := map[wish]*wanted{}
	for i := range m.Len() {
		url := m.URL(i)
		if m.Format(i) != nil || wire.IsDataURI(url) {
			given = append(given, i)
			continue
		}
		text, _ := wire.Unquote(url)
		asked := wish{m.Modality(i), text}
		w := at[asked]
		if w == nil {
			w = &wanted{seat: p.flights.Seat(asked.modality, text)}
			at[asked] = w
			all = append(all, w)
		}
		w.items = append(w.items, i)
	}
	return all, given
}

func (p *mediaPhase) count(w *wanted, found media.Found) {
	p.metrics.mediaCache.WithLabelValues(string(found), w.seat.Modality().String()).Inc()
}

// check is the task for the media that came inlined.
func (p *mediaPhase) check(m *wire.Media, which []int) Task {
	return Task{Pool: PoolMedia, Run: func(context.Context) (Result, error) {
		for _, i := range which {
			if err := p.checkInlined(m, i); err != nil {
				return nil, err
			}
		}
		return inlined{}, nil
	}}
}

func (p *mediaPhase) checkInlined(m *wire.Media, i int) error {
	allowed := &p.allowed[m.Modality(i)]
	if format := m.Format(i); format != nil {
		return allowed.CheckInput(format, m.URL(i))
	}
	return allowed.CheckDataURI(m.URL(i))
}

// lead is the task for a URL whose download the request leads.
func (f *fetching) lead(w *wanted) Task {
	return Task{Pool: PoolMedia, Run: func(ctx context.Context) (Result, error) { return f.run(ctx, w) }}
}

func (f *fetching) run(ctx context.Context, w *wanted) (Result, error) {
	// A request that ends leaves all its downloads at once: two that wait for
	// each other's would keep them alive.
	stop := context.AfterFunc(ctx, f.seats.Leave)
	defer stop()
	call := f.journal.Begin("media", "", time.Now())
	uri, err := w.seat.Run(ctx)
	downloaded(&call, err)
	return inlined{w.items, uri}, err
}

// look is the task for a URL that nobody had under way when it was planned.
func (p *mediaPhase) look(f *fetching, w *wanted) Task {
	return Task{Pool: PoolMedia, Run: func(ctx context.Context) (Result, error) {
		found := w.seat.Join(true)
		if found != media.Nowhere { // the request has ended
			p.count(w, found)
		}
		if found == media.Shared {
			return w, nil
		}
		return f.run(ctx, w)
	}}
}

// await is the task for a URL whose medium is kept, or that another request is
// downloading.
func (f *fetching) await(w *wanted) Task {
	return Task{Await: func(ctx context.Context, wake func(Result, error)) {
		stop := context.AfterFunc(ctx, f.seats.Leave)
		call := f.journal.Begin("media", "", time.Now())
		w.seat.Await(func(uri []byte, err error) {
			stop()
			downloaded(&call, err)
			wake(inlined{w.items, uri}, err)
		})
	}}
}

// downloaded notes the end of a download, or of waiting for one.
func downloaded(call *journal.Open, err error) {
	if err != nil {
		call.Failed(wire.FaultOf(err).ErrorCode())
	}
	call.End(time.Now())
}

func (p *mediaPhase) Join(r *Request, results []Result) (Verdict, error) {
	f := r.fetching
	for _, result := range results {
		switch d := result.(type) {
		case *wanted:
			f.shared = append(f.shared, d)
		case inlined:
			for _, i := range d.items {
				f.uris[i] = d.uri
			}
		}
	}
	if len(f.shared) > 0 {
		return Verdict{Again: stepMedia}, nil
	}
	r.Fetched.Media = r.Prompt.Media.Inline(f.uris)
	r.fetching, r.images = nil, f.seats
	return Next, nil
}
