package phases

import (
	"fmt"
	"time"

	"github.com/llm-coordinator/coordinator/transport/media"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// DefaultMediaParams returns the parameters of a step that says nothing.
func DefaultMediaParams() MediaParams {
	return MediaParams{DownloadTimeout: 10 * time.Second, MaxConcurrentDownloads: 10, CacheTTL: 5 * time.Minute,
		MaxDownloadSize: 10, MaxAudioDownloadSize: 25, MaxVideoDownloadSize: 50,
		AllowedImageContentTypes: media.DefaultTypes(wire.Image),
		AllowedAudioContentTypes: media.DefaultTypes(wire.Audio),
		AllowedVideoContentTypes: media.DefaultTypes(wire.Video)}
}

// check refuses values that make no sense.
func (p *MediaParams) check(params Params) error {
	switch {
	case p.DownloadTimeout <= 0:
		return params.Errorf("download_timeout", "must be more than 0s")
	case p.MaxConcurrentDownloads < 1:
		return params.Errorf("max_concurrent_downloads", "must be at least 1")
	case p.MaxMultimodalEntries < 0:
		return params.Errorf("max_multimodal_entries", "must not be negative (0 is no limit)")
	case p.MaxDownloadSize < 1:
		return params.Errorf("max_download_size", "must be at least 1 (MB)")
	case p.MaxImageDownloadSize < 0:
		return params.Errorf("max_image_download_size", "must not be negative (MB; 0 is max_download_size)")
	case p.MaxAudioDownloadSize < 1:
		return params.Errorf("max_audio_download_size", "must be at least 1 (MB)")
	case p.MaxVideoDownloadSize < 1:
		return params.Errorf("max_video_download_size", "must be at least 1 (MB)")
	case p.CacheSize < 0:
		return params.Errorf("cache_size", "must not be negative (MB; 0 keeps nothing)")
	case p.CacheTTL <= 0:
		return params.Errorf("cache_ttl", "must be more than 0s")
	}
	return nil
}

// allowed is what media may be, by modality.
func (p *MediaParams) allowed(params Params) (all [wire.Modalities]media.Allowed, err error) {
	image := p.MaxImageDownloadSize
	if image == 0 {
		image = p.MaxDownloadSize
	}
	for m, given := range [wire.Modalities]struct {
		size  int
		types []string
	}{
		wire.Image: {image, p.AllowedImageContentTypes},
		wire.Audio: {p.MaxAudioDownloadSize, p.AllowedAudioContentTypes},
		wire.Video: {p.MaxVideoDownloadSize, p.AllowedVideoContentTypes},
	} {
		modality := wire.Modality(m)
		types, err := media.ParseTypes(modality, given.types)
		if err != nil {
			return all, params.Errorf("allowed_"+modality.String()+"_content_types", "%v", err)
		}
		all[m] = media.Allowed{Modality: modality, MaxSize: int64(given.size) << 20, Types: types}
	}
	return all, nil
}

// describe says for operators what is served.
func (p *MediaParams) describe(allowed [wire.Modalities]media.Allowed) string {
	text := ""
	for m, a := range allowed {
		if len(a.Types) == 0 {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s of at most %d MB", [wire.Modalities]string{"images", "audio", "video"}[m], a.MaxSize>>20)
	}
	if text == "" {
		text = "no media"
	}
	if p.CacheSize > 0 {
		text += fmt.Sprintf(", %d MB of them kept for %v", p.CacheSize, p.CacheTTL)
	}
	return text
}
