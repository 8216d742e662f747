package phases

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/llm-coordinator/coordinator/transport/media"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

const stepMedia = "replace-media-urls"

func init() { Register(stepMedia, NewMedia) }

// MediaParams are the parameters of a replace-media-urls step.
type MediaParams struct {
	// DownloadTimeout of one image, redirects included.
	DownloadTimeout time.Duration `toml:"download_timeout"`
	// MaxConcurrentDownloads of one request.
	MaxConcurrentDownloads int `toml:"max_concurrent_downloads"`
	// MaxMultimodalEntries of one request; 0 is no limit.
	MaxMultimodalEntries int `toml:"max_multimodal_entries"`
	// MaxDownloadSize of one image, in MB of 2^20 bytes.
	MaxDownloadSize int `toml:"max_download_size"`
	// AllowPrivateNetworks lets RFC 1918 addresses through the guard.
	AllowPrivateNetworks bool `toml:"allow_private_networks"`
	// AllowedNetworks are CIDRs let through whatever the guard says.
	AllowedNetworks []string `toml:"allowed_networks"`
	// AllowedDomains are the only hosts; empty is all.
	AllowedDomains []string `toml:"allowed_domains"`
}

// mediaPhase downloads the images that a chat request names by URL, and puts
// them in the URLs' place as data URIs; images that came inlined are checked.
// After it nobody behind us fetches anything that a client has named.
type mediaPhase struct {
	fetcher     *media.Fetcher
	parallel    int
	maxEntries  int
	maxSize     int64
	description string
	metrics     *Metrics
}

// NewMedia builds a replace-media-urls phase.
func NewMedia(deps Deps, params Params) (Phase, error) {
	p := MediaParams{DownloadTimeout: 10 * time.Second, MaxConcurrentDownloads: 10, MaxDownloadSize: 10}
	if err := params.Decode(&p); err != nil {
		return nil, err
	}
	switch {
	case p.DownloadTimeout <= 0:
		return nil, params.Errorf("download_timeout", "must be more than 0s")
	case p.MaxConcurrentDownloads < 1:
		return nil, params.Errorf("max_concurrent_downloads", "must be at least 1")
	case p.MaxMultimodalEntries < 0:
		return nil, params.Errorf("max_multimodal_entries", "must not be negative (0 is no limit)")
	case p.MaxDownloadSize < 1:
		return nil, params.Errorf("max_download_size", "must be at least 1 (MB)")
	}
	s := media.Settings{Timeout: p.DownloadTimeout, MaxSize: int64(p.MaxDownloadSize) << 20,
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
	deps.OnClose(fetcher.Close)
	return &mediaPhase{fetcher: fetcher, parallel: p.MaxConcurrentDownloads, maxEntries: p.MaxMultimodalEntries,
		maxSize: s.MaxSize, metrics: deps.Metrics, description: fmt.Sprintf("images of at most %d MB", p.MaxDownloadSize)}, nil
}

func (p *mediaPhase) Name() string { return stepMedia }

// String describes the phase for operators.
func (p *mediaPhase) String() string { return p.description }

// inlined is the result of a download: the URL's images get its data URI.
type inlined struct {
	images []int
	uri    []byte
}

// Plan makes one task for each distinct URL, and one that checks all images
// that came inlined.
func (p *mediaPhase) Plan(r *Request) (Plan, error) {
	m := r.Prompt.Media
	if m.Len() == 0 {
		return Plan{}, nil
	}
	if p.maxEntries > 0 && m.Len() > p.maxEntries {
		return Plan{}, wire.Faultf(wire.LimitExceeded, "the request has %d images, more than the limit of %d", m.Len(), p.maxEntries)
	}
	plan := Plan{MaxParallel: p.parallel}
	var uris [][]byte
	at := map[string]int{} // index in downloads
	var downloads []*inlined
	for i := range m.Len() {
		url := m.URL(i)
		if wire.IsDataURI(url) {
			uris = append(uris, url)
			continue
		}
		if d, known := at[string(url)]; known {
			downloads[d].images = append(downloads[d].images, i)
			continue
		}
		at[string(url)] = len(downloads)
		downloads = append(downloads, &inlined{images: []int{i}})
		text, _ := wire.Unquote(url)
		plan.Tasks = append(plan.Tasks, p.download(text))
	}
	for i := range downloads {
		run, images := plan.Tasks[i].Run, downloads[i].images
		plan.Tasks[i].Run = func(ctx context.Context) (Result, error) {
			uri, err := run(ctx)
			if err != nil {
				return nil, err
			}
			return inlined{images, uri.([]byte)}, nil
		}
	}
	if len(uris) > 0 {
		plan.Tasks = append(plan.Tasks, Task{Pool: PoolMedia, Run: func(context.Context) (Result, error) {
			for _, uri := range uris {
				if err := media.CheckDataURI(uri, p.maxSize); err != nil {
					return nil, err
				}
			}
			return inlined{}, nil
		}})
	}
	return plan, nil
}

// download is the task of one URL.
func (p *mediaPhase) download(url string) Task {
	return Task{Pool: PoolMedia, Run: func(ctx context.Context) (Result, error) {
		uri, err := p.fetcher.Fetch(ctx, url)
		result := "ok"
		if err != nil {
			result = wire.FaultOf(err).ErrorCode()
		}
		p.metrics.downloads.WithLabelValues(result).Inc()
		return uri, err
	}}
}

func (p *mediaPhase) Join(r *Request, results []Result) (Verdict, error) {
	uris := make([][]byte, r.Prompt.Media.Len())
	for _, result := range results {
		d := result.(inlined)
		for _, i := range d.images {
			uris[i] = d.uri
		}
	}
	r.Fetched.Media = r.Prompt.Media.Inline(uris)
	return Next, nil
}
