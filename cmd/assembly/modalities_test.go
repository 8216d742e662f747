package assembly_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// medium is a medium of a test's request: how the client names it, and its file at
// the cluster's origin.
type medium struct {
	how  string // url, bare (a URL that is no object), inline or input
	file string
	uuid string
}

func (m medium) modality() string {
	switch m.file[strings.LastIndexByte(m.file, '.')+1:] {
	case "png", "jpg":
		return "image"
	case "mp4", "webm", "mov", "mpg":
		return "video"
	}
	return "audio"
}

func (m medium) hash() string {
	if m.uuid != "" {
		return m.uuid
	}
	return cluster.ImageHash(cluster.MediaBytes(m.file, 300))
}

// part is its content part.
func (m medium) part(r *rig) string {
	member, url := m.modality()+"_url", r.cluster.ImageURL(m.file, cluster.ImageOptions{Bytes: 300})
	value := fmt.Sprintf(`{"url":%q,"detail":"low"}`, url)
	switch m.how {
	case "bare":
		value = fmt.Sprintf("%q", url)
	case "inline":
		value = fmt.Sprintf(`{"url":%q}`, cluster.MediaURI(m.file, 300))
	case "input":
		member = "input_audio"
		format := m.file[strings.LastIndexByte(m.file, '.')+1:]
		value = fmt.Sprintf(`{"data":%q,"format":%q}`, base64.StdEncoding.EncodeToString(cluster.MediaBytes(m.file, 300)), format)
	}
	if m.uuid != "" {
		return fmt.Sprintf(`{"type":%q,"uuid":%q,%q:%s}`, member, m.uuid, member, value)
	}
	return fmt.Sprintf(`{"type":%q,%q:%s}`, member, member, value)
}

// mediaChat is a chat request with these media, of which the last half is in a
// message of its own.
func (r *rig) mediaChat(stream bool, media []medium) string {
	var parts []string
	for _, m := range media {
		parts = append(parts, m.part(r))
	}
	half := len(parts) / 2
	return fmt.Sprintf(`{"model":"demo-model","stream":%t,"messages":[{"role":"system","content":[%s]},{"role":"user","content":[%s]}]}`, stream,
		strings.Join(parts[:half], ","), strings.Join(append([]string{`{"type":"text","text":"one two"}`}, parts[half:]...), ","))
}

func mediaReply(media []medium) string {
	var all []cluster.Medium
	for _, m := range media {
		all = append(all, cluster.Medium{Modality: m.modality(), Hash: m.hash()})
	}
	return cluster.ReplyWithMedia("one two", all...)
}

// mixes are requests by their media.
var mixes = []struct {
	name  string
	media []medium
}{
	{"audio by URL", []medium{{"url", "a.wav", ""}}},
	{"audio by bare URL", []medium{{"bare", "a.mp3", ""}}},
	{"audio inline", []medium{{"inline", "a.flac", ""}}},
	{"input_audio", []medium{{"input", "a.wav", ""}}},
	{"video by URL", []medium{{"url", "v.mp4", ""}}},
	{"video by bare URL", []medium{{"bare", "v.webm", ""}}},
	{"video inline", []medium{{"inline", "v.mov", ""}}},
	{"one of each", []medium{{"url", "v.mp4", ""}, {"inline", "i.png", ""}, {"input", "a.mp3", ""}}},
	{"in turn", []medium{{"inline", "i.png", ""}, {"url", "a.ogg", ""}, {"url", "j.png", ""}, {"input", "b.wav", ""}, {"bare", "v.mpg", ""}, {"inline", "k.png", ""}}},
	{"the same twice", []medium{{"url", "v.mp4", ""}, {"input", "a.wav", ""}, {"inline", "v.mp4", ""}, {"url", "a.wav", ""}, {"url", "v.mp4", ""}}},
	{"one uuid for two modalities", []medium{{"inline", "i.png", "mine"}, {"url", "a.m4a", "mine"}, {"url", "v.mp4", "its"}}},
}

// TestMediaGoThroughEveryPipeline: all modalities, alone and mixed, in both
// formats. The cluster is the judge: it loads and hashes each medium anew, and its
// answer names them in order.
func TestMediaGoThroughEveryPipeline(t *testing.T) {
	for _, ec := range []string{cluster.ECNixl, cluster.ECSharedStorage} {
		for _, openAI := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/openai=%t", ec, openAI), func(t *testing.T) {
				r := newRig(t, setup{ec: ec, tokensIn: !openAI, steps: wholeSteps})
				for i, mix := range mixes {
					id := fmt.Sprintf("req-%d", i)
					stream := i%2 == 1
					got := r.post(chatPath, r.mediaChat(stream, mix.media), "X-Request-Id", id)
					if want := mediaReply(mix.media); got.status != http.StatusOK || got.err != nil || said(t, got.body, stream) != want {
						t.Errorf("%s: got %d %v %s\nwant %s", mix.name, got.status, got.err, got.body, want)
					}
					if legs, want := ordered(r.legs(id)), legsOfMedia(mix.media); !slices.Equal(legs, want) {
						t.Errorf("%s: legs %v, want %v", mix.name, legs, want)
					}
					r.wantFormat(id, openAI)
				}
				r.settled()
				if n := r.metric(t, "llm_d_coordinator_request_media_total"); n != float64(len(mixes)) {
					t.Errorf("%v requests with media, want %d", n, len(mixes))
				}
				st := r.cluster.State()
				if st.ReusedHandoffs+st.FailedLoads+st.LocalEncodes+st.WorkerFetches+st.Recomputed != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// wantFormat checks where a request's encode and prefill legs went.
func (r *rig) wantFormat(id string, openAI bool) {
	r.t.Helper()
	want := generatePath
	if openAI {
		want = chatPath
	}
	for _, leg := range r.cluster.Legs(id) {
		if (leg.Name == cluster.Encode || leg.Name == cluster.Prefill) && leg.Path != want {
			r.t.Errorf("%s: %s went to %s", id, leg.Name, leg.Path)
		}
	}
}

// legsOfMedia are the legs of a request but those of the origin: one encode for
// each distinct hash.
func legsOfMedia(media []medium) []string {
	legs := []string{"render"}
	seen := map[string]bool{}
	for _, m := range media {
		if !seen[m.hash()] {
			legs = append(legs, "encode")
		}
		seen[m.hash()] = true
	}
	return append(legs, "prefill", "decode")
}

// TestDownloadsOfMediaAreShared by URL and modality: what is asked for as an image
// and as audio is two downloads, of which one is refused.
func TestDownloadsOfMediaAreShared(t *testing.T) {
	r := sharingRig(t, "cache_size = 1", "")
	twice := []medium{{"url", "v.mp4", ""}, {"bare", "v.mp4", ""}}
	for range 2 {
		if got := r.post(chatPath, r.mediaChat(false, twice)); said(t, got.body, false) != mediaReply(twice) {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if n := r.cluster.Count(cluster.Origin); n != 1 || r.labelled("media_cache_total", "hit") != 1 {
		t.Errorf("%d downloads", n)
	}
	url := r.cluster.ImageURL("v.mp4", cluster.ImageOptions{Bytes: 300})
	got := r.post(chatPath, fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}}]}]}`, url))
	if o := readError(t, got.body); o.Error.Code != "media_fetch_failed" || r.cluster.Count(cluster.Origin) != 2 {
		t.Errorf("a video is an image: %d %s", got.status, got.body)
	}
	r.settled()
	for label, want := range map[string]float64{"video": 2, "image": 1} {
		if n := r.labelled("media_items", label); n != want {
			t.Errorf("media_items of %s: %v, want %v", label, n, want)
		}
	}
	if n := r.labelled("media_download_duration_seconds", "video"); n != 1 {
		t.Errorf("%v downloads of videos", n)
	}
}

// TestMediaThatCannotBeServed: of each modality. Nothing goes further than the
// download.
func TestMediaThatCannotBeServed(t *testing.T) {
	r := newRig(t, setup{steps: strings.Replace(wholeSteps, "max_download_size = 8", `max_image_download_size = 2, max_audio_download_size = 1, max_video_download_size = 1,
		allowed_audio_content_types = ["audio/wav", "audio/mpeg"], max_multimodal_entries = 3`, 1)})
	one := func(member, value string) string {
		return fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":%q,%q:%s}]}]}`, member, member, value)
	}
	url := func(member, name string, o cluster.ImageOptions) string {
		return one(member, fmt.Sprintf(`{"url":%q}`, r.cluster.ImageURL(name, o)))
	}
	input := func(format string, data []byte) string {
		return one("input_audio", fmt.Sprintf(`{"data":%q,"format":%q}`, base64.StdEncoding.EncodeToString(data), format))
	}
	large := cluster.ImageOptions{Bytes: 1<<20 + 1}
	for _, tt := range []struct{ name, body, code string }{
		{"audio at a private address", one("audio_url", `"http://10.0.0.1/a.wav"`), "media_fetch_failed"},
		{"video at a private address", one("video_url", `{"url":"http://192.168.0.1/v.mp4"}`), "media_fetch_failed"},
		{"video of the metadata server", one("video_url", `{"url":"http://169.254.169.254/latest"}`), "media_fetch_failed"},
		{"audio file", one("audio_url", `"file:///etc/passwd"`), "invalid_media"},
		{"audio called so", url("audio_url", "v.mp4", cluster.ImageOptions{Type: "audio/wav"}), "media_fetch_failed"},
		{"video that is sound", url("video_url", "a.wav", cluster.ImageOptions{Type: "video/mp4"}), "media_fetch_failed"},
		{"image for a video", url("video_url", "i.png", cluster.ImageOptions{}), "media_fetch_failed"},
		{"page", url("video_url", "v.mp4", cluster.ImageOptions{HTML: true}), "media_fetch_failed"},
		{"type that is not allowed", url("audio_url", "a.flac", cluster.ImageOptions{}), "media_fetch_failed"},
		{"too large audio", url("audio_url", "a.wav", large), "limit_exceeded"},
		{"too large video", url("video_url", "v.mp4", cluster.ImageOptions{Bytes: 1<<20 + 1, NoLength: true}), "limit_exceeded"},
		{"too large video inlined", one("video_url", fmt.Sprintf("%q", cluster.MediaURI("v.mp4", 1<<20+1))), "limit_exceeded"},
		{"too large input_audio", input("wav", cluster.MediaBytes("a.wav", 1<<20+1)), "limit_exceeded"},
		{"input_audio of another format", input("flac", cluster.MediaBytes("a.flac", 300)), "invalid_media"},
		{"input_audio of an odd format", input("wav;base64,AAAA", cluster.MediaBytes("a.wav", 300)), "invalid_media"},
		{"input_audio that is no base64", one("input_audio", `{"data":"%%%%","format":"wav"}`), "invalid_media"},
		{"input_audio that is empty", input("wav", nil), "invalid_media"},
		{"data URI of another modality", one("audio_url", fmt.Sprintf("%q", cluster.MediaURI("v.mp4", 0))), "invalid_media"},
		{"embeddings", one("audio_embeds", `"AAAA"`), "invalid_media"},
		{"too many", r.mediaChat(false, mixes[8].media), "limit_exceeded"},
	} {
		got := r.post(chatPath, tt.body)
		if o := readError(t, got.body); got.status != http.StatusBadRequest || o.Error.Code != tt.code {
			t.Errorf("%s: got %d %s", tt.name, got.status, got.body)
		}
	}
	if n := r.cluster.Count(cluster.Render); n != 0 {
		t.Errorf("%d renders", n)
	}
	image := r.post(chatPath, url("image_url", "i.png", large)) // an image may be larger
	if image.status != http.StatusOK {
		t.Errorf("got %d %s", image.status, image.body)
	}
	r.settled()
}

// TestModalityThatIsNotServed is refused before anything is fetched.
func TestModalityThatIsNotServed(t *testing.T) {
	r := sharingRig(t, `allowed_video_content_types = []`, "")
	got := r.post(chatPath, r.mediaChat(false, []medium{{"url", "i.png", ""}, {"url", "v.mp4", ""}}))
	if o := readError(t, got.body); got.status != http.StatusBadRequest || o.Error.Code != "invalid_media" || r.cluster.Count(cluster.Origin) != 0 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.settled()
}
