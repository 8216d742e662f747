package wiretest

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// kind is a modality, by the member of a part that has it.
type kind struct {
	member, modality, mime string
	head                   string // what such a file begins with
}

var kinds = []kind{
	{"image_url", "image", "image/png", "\x89PNG\r\n\x1a\n"},
	{"audio_url", "audio", "audio/wav", "RIFF\x00\x00\x00\x00WAVEfmt "},
	{"input_audio", "audio", "audio/wav", "RIFF\x00\x00\x00\x00WAVEfmt "},
	{"video_url", "video", "video/mp4", "\x00\x00\x00\x18ftypisom"},
}

// file is a medium as bytes.
func (k kind) file(n int) []byte { return fmt.Appendf(nil, "%s number %d", k.head, n) }

func (k kind) base64(n int) string { return base64.StdEncoding.EncodeToString(k.file(n)) }

func (k kind) dataURI(n int) string { return "data:" + k.mime + ";base64," + k.base64(n) }

// File is what an origin serves at a path; nil if there is nothing.
func File(path string) []byte {
	for _, k := range kinds {
		if number, ok := strings.CutPrefix(path, "/"+k.modality+"/"); ok {
			if n, err := strconv.Atoi(number); err == nil {
				return k.file(n)
			}
		}
	}
	return nil
}

// here stands for a value that is put in later.
const here = "\x00"

// medium adds a content part with an image, audio or video.
func (c *Client) medium(r random, origin string) {
	k, n := pick(r, kinds[0], kinds[0], kinds[0], kinds[1], kinds[2], kinds[3]), r.IntN(6)
	if c.Protocol == Responses { // which has only images
		k = kinds[0]
	}
	im := Medium{Modality: k.modality, URL: k.dataURI(n)}
	value := here
	switch {
	case k.member == "input_audio":
		im.URL, im.Format = k.base64(n), "wav"
		value = r.holder("data", Member{Name: "format", Spelt: r.spell("format"), Colon: ":", Value: r.spell("wav")})
	case r.oneIn(3):
		im.URL, im.Inlined = fmt.Sprintf("%s/%s/%d", origin, k.modality, n), `"`+k.dataURI(n)+`"`
		fallthrough
	default:
		if !r.oneIn(3) {
			value = r.holder("url", r.member("detail", pick(r, `"low"`, `"auto"`, "null")))
		}
	}
	im.spelt = r.spell(im.URL)
	o := &Object{}
	o.add(r.member(k.member, value))
	if !r.oneIn(4) {
		o.add(r.member("type", pick(r, r.spell(k.member), `"picture"`, `"text"`, "null")))
	}
	if im.uuid = r.oneIn(4); im.uuid {
		o.add(r.member("uuid", pick(r, r.str(), "null")))
	}
	for range r.IntN(3) {
		o.add(r.member(pick(r, names...), r.value(2)))
	}
	r.Shuffle(len(o.members), func(i, j int) { o.members[i], o.members[j] = o.members[j], o.members[i] })
	im.before, im.after, _ = strings.Cut(o.text(), here)
	im.after = strings.TrimSuffix(im.after, "}")
	c.Media = append(c.Media, im)
	c.messages = append(c.messages, "")
}

// holder is an object that has something to come under a name, another member, and
// maybe more.
func (r random) holder(name string, other Member) string {
	o := &Object{}
	o.add(r.member(name, here))
	if other.Name == "format" || r.oneIn(2) {
		o.add(other)
	}
	if r.oneIn(4) {
		o.add(r.member(pick(r, names...), r.value(2)))
	}
	r.Shuffle(len(o.members), func(i, j int) { o.members[i], o.members[j] = o.members[j], o.members[i] })
	return o.text()
}
