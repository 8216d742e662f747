package enginetest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"maps"
	"slices"
	"strings"
	"testing"
)

// imageURLs are those of a chat body.
func imageURLs(t *testing.T, body string) (urls []string) {
	t.Helper()
	var b struct {
		Messages []struct {
			Content []struct {
				Type     string
				ImageURL struct{ URL string } `json:"image_url"`
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatal(err)
	}
	for _, part := range b.Messages[0].Content {
		if part.Type == "image_url" {
			urls = append(urls, part.ImageURL.URL)
		}
	}
	return urls
}

// TestImagesAreWhatWasAskedFor: as many, as large, half of them by URL, and those
// inlined are pictures that differ.
func TestImagesAreWhatWasAskedFor(t *testing.T) {
	d := startDemo(t)
	env := d.env()
	maps.Copy(env, map[string]string{"LOAD_IMAGES": "2-4", "LOAD_IMAGE_BYTES": "150000"})
	e, err := Run(t.Context(), scriptsDir, "images.js", env)
	if err != nil {
		t.Fatal(err)
	}
	counts, pictures, remote := map[int]bool{}, map[string]bool{}, map[string]bool{}
	inlined, byURL := 0, 0
	for _, r := range e.Requests {
		if r.Tags["kind"] == "" {
			continue
		}
		urls := imageURLs(t, r.Body)
		counts[len(urls)] = true
		for _, u := range urls {
			text, ok := strings.CutPrefix(u, "data:image/png;base64,")
			if !ok {
				byURL++
				remote[u] = strings.HasPrefix(u, d.cluster+"/_origin/")
				continue
			}
			inlined++
			pictures[pixels(t, text, 150000)] = true
		}
	}
	if got := slices.Sorted(maps.Keys(counts)); got[0] < 2 || got[len(got)-1] > 4 {
		t.Errorf("numbers of images: %v", got)
	}
	if inlined == 0 || len(pictures) != inlined || byURL == 0 || len(remote) != byURL || slices.Contains(slices.Collect(maps.Values(remote)), false) {
		t.Errorf("%d inlined, %d of them different; %d by URL, %v", inlined, len(pictures), byURL, remote)
	}
}

// pixels decodes an image and says what is to be seen in its first row.
func pixels(t *testing.T, text string, size int) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) < size*95/100 || len(data) > size*105/100 {
		t.Errorf("an image of %d bytes, asked for were %d", len(data), size)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var row []byte
	for x := range picture.Bounds().Dx() {
		r, g, b, _ := picture.At(x, 0).RGBA()
		row = append(row, byte(r), byte(g), byte(b))
	}
	return string(row)
}
