package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// mediaPart is a content part with a data URI.
func mediaPart(member, uri string) string {
	return `{"type":"` + member + `","` + member + `":{"url":"` + uri + `"}}`
}

func inputPart(name string, size int) string {
	return fmt.Sprintf(`{"type":"input_audio","input_audio":{"data":"%s","format":"%s"}}`, base64.StdEncoding.EncodeToString(MediaBytes(name, size)), strings.SplitN(name, ".", 2)[1])
}

// TestRenderOfAllModalities: lists by modality, places in the order of the parts.
func TestRenderOfAllModalities(t *testing.T) {
	r := start(t, Options{PlainFeatures: true})
	body := chatOf("", mediaPart("video_url", MediaURI("v.mp4", 0)), inputPart("a.wav", 100), textPart, imagePart(catURI, ""), mediaPart("audio_url", MediaURI("b.flac", 0)))
	p := r.render("x", body)
	want := map[string][]string{"video": {ImageHash(MediaBytes("v.mp4", 0))}, "audio": {ImageHash(MediaBytes("a.wav", 100)), ImageHash(MediaBytes("b.flac", 0))}, "image": {catHash}}
	if !maps.EqualFunc(p.Features.Hashes, want, slices.Equal) {
		t.Errorf("hashes %q, want %q", p.Features.Hashes, want)
	}
	last := 0
	for _, of := range []struct {
		modality string
		i        int
	}{{"video", 0}, {"audio", 0}, {"image", 0}, {"audio", 1}} {
		var at struct{ Offset, Length int }
		if err := json.Unmarshal(p.Features.Placeholders[of.modality][of.i], &at); err != nil || at.Offset <= last {
			t.Errorf("%v: %+v, %v", of, at, err)
		}
		last = at.Offset
		if want := r.TokenIDs(strings.Join(placeholderWords(of.modality, at.Length), " "))[1:]; !slices.Equal(p.TokenIDs[at.Offset:at.Offset+at.Length], want) {
			t.Errorf("%v: the span is not its", of)
		}
		item, _ := base64.StdEncoding.DecodeString(*p.Features.Kwargs[of.modality][of.i])
		for _, name := range []string{namesOf(of.modality).large, namesOf(of.modality).small} {
			if !strings.Contains(string(item), name) {
				t.Errorf("%v has no %s", of, name)
			}
		}
	}
	got := r.send(call{leg: Decode, body: body})
	if want := ReplyWithMedia("what is this", Medium{"video", want["video"][0]}, Medium{"audio", want["audio"][0]}, Medium{"image", catHash}, Medium{"audio", want["audio"][1]}); said(t, got.body) != want {
		t.Errorf("got %s, want %s", got.body, want)
	}
}

// TestMediaThatWorkersCannotLoad are refused, long ones too, which are not read as
// a whole.
func TestMediaThatWorkersCannotLoad(t *testing.T) {
	r := start(t, Options{})
	for _, part := range []string{
		mediaPart("audio_url", MediaURI("v.webm", 0)), mediaPart("video_url", MediaURI("a.wav", longURI)), mediaPart("video_url", catURI), mediaPart("image_url", MediaURI("v.mp4", 0)),
		mediaPart("audio_url", strings.Replace(MediaURI("v.webm", longURI), "video/webm", "audio/wav", 1)),
		mediaPart("video_url", strings.Replace(MediaURI("a.wav", 0), "audio/wav", "video/mp4", 1)), mediaPart("audio_url", ""), mediaPart("audio_url", "file:///a.wav"),
		`{"input_audio":{"data":"` + MediaURI("a.wav", 0) + `","format":"wav"}}`, `{"input_audio":{"format":"wav"}}`, `{"input_audio":{"data":"UklGRg=="}}`, `{"input_audio":"UklGRg=="}`,
		`{"audio_url":"` + MediaURI("a.wav", 0) + `","image_url":"` + catURI + `"}`, `{"audio_embeds":"x"}`,
	} {
		if got := r.send(call{leg: Render, body: chatOf("", part)}); got.status != http.StatusBadRequest {
			t.Errorf("%.200s: %d %s", part, got.status, got.body)
		}
	}
	for _, part := range []string{mediaPart("audio_url", MediaURI("a.mp3", longURI)), mediaPart("video_url", MediaURI("v.mov", longURI))} {
		if got := r.send(call{leg: Render, body: chatOf("", part)}); got.status != http.StatusOK {
			t.Errorf("%.100s: %d %s", part, got.status, got.body)
		}
	}
}

// TestModalitiesThatAreMixedUp are violations, or refused: an encode that calls
// audio an image, and a prefill with features whose modalities have changed places.
func TestModalitiesThatAreMixedUp(t *testing.T) {
	r := start(t, Options{PlainFeatures: true})
	audio, video := MediaURI("a.wav", 0), MediaURI("v.mp4", 0)
	p := r.render("x", chatOf("", mediaPart("audio_url", audio), mediaPart("video_url", video)))
	features := func(a, b string) string {
		return fmt.Sprintf(`{"mm_hashes":{%q:[%q],%q:[%q]},"mm_placeholders":{%q:[%s],%q:[%s]},"kwargs_data":{%q:[%q],%q:[%q]}}`, a, p.Features.Hashes["audio"][0], b, p.Features.Hashes["video"][0],
			a, p.Features.Placeholders["audio"][0], b, p.Features.Placeholders["video"][0], a, *p.Features.Kwargs["audio"][0], b, *p.Features.Kwargs["video"][0])
	}
	prefill := func(a, b string) {
		r.send(call{leg: Prefill, path: generateAPI.path, id: "x", body: fmt.Sprintf(`{"model":"demo-model","token_ids":%s,"features":%s,"stream":false,"request_id":"x",
			"sampling_params":{"max_tokens":1,"ignore_eos":true}}`, encode(p.TokenIDs), features(a, b))})
	}
	prefill("audio", "video")
	if s := r.State(); slices.ContainsFunc(s.Violations, func(v string) bool { return strings.Contains(v, "modality") }) {
		t.Fatalf("%q", s.Violations)
	}
	prefill("video", "audio")
	if s := r.State(); !slices.ContainsFunc(s.Violations, func(v string) bool { return strings.Contains(v, "it is of modality video, not audio") }) {
		t.Errorf("%q", s.Violations)
	}
	ids, _ := p.spanOf(t, "audio", 0)
	body := func(modality string) string {
		return fmt.Sprintf(`{"model":"demo-model","token_ids":%s,"features":{"mm_hashes":{%q:[%q]},"mm_placeholders":{%q:[{"offset":1,"length":%d}]},"kwargs_data":{%q:[%q]}},"sampling_params":{"max_tokens":1},"stream":false}`,
			encode(append([]int{bos}, ids...)), modality, p.Features.Hashes["audio"][0], modality, len(ids), modality, *p.Features.Kwargs["audio"][0])
	}
	for modality, want := range map[string]int{"image": http.StatusBadRequest, "hologram": http.StatusBadRequest, "audio": http.StatusOK} {
		if got := r.send(call{leg: Encode, path: generateAPI.path, id: "x", body: body(modality)}); got.status != want {
			t.Errorf("%s: %d %s", modality, got.status, got.body)
		}
	}
}

// TestOriginOfMedia: what it says and sends is of the name's type.
func TestOriginOfMedia(t *testing.T) {
	r := start(t, Options{})
	for _, f := range formats {
		resp, err := http.Get(r.ImageURL("a"+f.extension, ImageOptions{Bytes: 200}))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != f.mediaType || resp.ContentLength != 200 {
			t.Errorf("%s: %d %s, %d bytes", f.extension, resp.StatusCode, resp.Header.Get("Content-Type"), resp.ContentLength)
		}
		if !canLoad(f.modality(), f.mediaType, MediaBytes("a"+f.extension, 0)) {
			t.Errorf("%s cannot be loaded", f.extension)
		}
	}
	if string(MediaBytes("a.wav", 100)) == string(MediaBytes("b.wav", 100)) || MediaBytes("a.txt", 9) != nil {
		t.Error("names do not tell files apart")
	}
	http.DefaultClient.CloseIdleConnections()
}
