package media

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Allowed is what media of one modality may be.
type Allowed struct {
	Modality wire.Modality
	// MaxSize is how many bytes one may have, before base64. More than 0.
	MaxSize int64
	// Types are the content types, as in [DefaultTypes]; none: the modality is not
	// served.
	Types []string
}

// DefaultTypes returns the content types of a modality that are allowed where
// nothing else is said. They are all that are known.
func DefaultTypes(m wire.Modality) []string { return slices.Clone(known[m]) }

// known are the types that sniff tells apart.
var known = [wire.Modalities][]string{
	wire.Image: {"image/jpeg", "image/png", "image/gif", "image/webp"},
	wire.Audio: {"audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", "audio/webm", "audio/mp4", "audio/aac"},
	wire.Video: {"video/mp4", "video/webm", "video/quicktime", "video/x-matroska", "video/mpeg", "video/x-msvideo", "video/ogg", "video/3gpp"},
}

// otherNames are further names of known types that are in use. Those of audio are
// also what clients of OpenAI's API call formats.
var otherNames = map[string]string{
	"audio/wave": "audio/wav", "audio/x-wav": "audio/wav", "audio/vnd.wave": "audio/wav",
	"audio/mp3": "audio/mpeg", "audio/mpga": "audio/mpeg", "audio/x-mpeg": "audio/mpeg",
	"audio/x-flac": "audio/flac", "audio/opus": "audio/ogg", "audio/vorbis": "audio/ogg",
	"audio/m4a": "audio/mp4", "audio/x-m4a": "audio/mp4", "audio/x-aac": "audio/aac", "audio/aacp": "audio/aac",
	"video/mov": "video/quicktime", "video/matroska": "video/x-matroska", "video/mkv": "video/x-matroska",
	"video/mpg": "video/mpeg", "video/avi": "video/x-msvideo", "video/vnd.avi": "video/x-msvideo", "video/3gp": "video/3gpp",
}

// ParseTypes reads content types of a modality as an operator writes them.
func ParseTypes(m wire.Modality, names []string) ([]string, error) {
	types := []string{}
	for _, name := range names {
		t := strings.ToLower(strings.TrimSpace(name))
		if other, ok := otherNames[t]; ok {
			t = other
		}
		if !slices.Contains(known[m], t) {
			return nil, fmt.Errorf("%q is none of %s", name, enumerated(known[m]))
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types, nil
}

// takes reports whether a type, in lower case, is allowed. It allocates nothing.
func (a *Allowed) takes(kind []byte) bool {
	for _, t := range a.Types {
		if t == string(kind) {
			return true
		}
	}
	other, ok := otherNames[string(kind)]
	return ok && slices.Contains(a.Types, other)
}

// noun is what messages call a medium.
func noun(m wire.Modality) string {
	if m == wire.Audio {
		return "audio file"
	}
	return m.String()
}

// one is noun with its article.
func one(m wire.Modality) string {
	if m == wire.Video {
		return "a video"
	}
	return "an " + noun(m)
}

// enumerated writes names as one reads them.
func enumerated(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// invalid is the fault of an inlined medium.
func (a *Allowed) invalid(reason string) *wire.Fault {
	return wire.Invalid(codeInvalid, "an inlined %s %s", noun(a.Modality), reason)
}

// Unserved returns the fault of a request with media of the modality if none of
// them are served, else nil.
func (a *Allowed) Unserved() error {
	if len(a.Types) > 0 {
		return nil
	}
	return wire.Invalid(codeInvalid, "media of modality %s are not served here", a.Modality)
}

// CheckInput checks the data and the format of an input_audio: JSON strings with
// their quotes, as they are in the body. It is as strict as
// [Allowed.CheckDataURI], and allocates nothing either.
func (a *Allowed) CheckInput(format, data []byte) error {
	name, ok := newChars(format)
	var room [maxHead]byte
	kind := append(room[:0], "audio/"...)
	for ok {
		b, more := name.next()
		if !more {
			break
		}
		if ok = len(kind) < cap(kind); ok {
			kind = append(kind, lower(b))
		}
	}
	if !ok || !a.takes(kind) {
		return a.invalid("has a format that is not served: want one of " + enumerated(a.Types) + ", without audio/")
	}
	c, ok := newChars(data)
	if !ok {
		return a.invalid("has no data")
	}
	return a.checkData(&c)
}

// checkData checks the rest of a string, which is base64.
func (a *Allowed) checkData(c *chars) error {
	whole := *c
	size, ok := c.base64(a.MaxSize)
	switch {
	case size > a.MaxSize:
		return wire.Faultf(wire.LimitExceeded, "an inlined %s is larger than %d bytes", noun(a.Modality), a.MaxSize)
	case !ok:
		return a.invalid("is not in base64 with the standard alphabet and padding")
	case size == 0:
		return a.invalid("is empty")
	case a.Modality != wire.Image && !a.holds(&whole):
		return a.invalid("holds none of " + enumerated(a.Types))
	}
	return nil
}

// holds reports whether base64 data begins like a file of an allowed type. What
// workers read audio and video with goes by the bytes, whatever their type is said
// to be, and some of what it takes are lists of URLs to fetch.
func (a *Allowed) holds(c *chars) bool {
	var digits [(sniffed + 2) / 3 * 4]byte
	n := 0
	for n < len(digits) {
		b, ok := c.next()
		if !ok {
			break
		}
		digits[n] = b
		n++
	}
	var head [(sniffed + 2) / 3 * 3]byte
	n, _ = base64.StdEncoding.Decode(head[:], digits[:n]) // it has been checked
	return slices.Contains(a.Types, sniff(a.Modality, head[:min(n, sniffed)]))
}

// CheckDataURI checks an inlined medium: a JSON string, given with its quotes as
// it is in the body, that is a data URI of an allowed type and size. It reads the
// string where it is and allocates nothing. Errors are *wire.Fault.
//
// The type is judged as it is declared, and that of audio and video by their bytes
// too; the data must be base64 in its standard alphabet, padded, without anything between. Workers decode laxer and each in
// its own way: what they get has one meaning.
func (a *Allowed) CheckDataURI(value []byte) error {
	c, ok := newChars(value)
	if !ok || !c.scheme("data:") {
		return a.invalid("is no data URI")
	}
	var room [maxHead]byte
	head, ok := c.head(room[:0])
	if !ok {
		return a.invalid("is a data URI that cannot be read")
	}
	kind, parameters, _ := bytes.Cut(head, []byte(";"))
	last := parameters[bytes.LastIndexByte(parameters, ';')+1:]
	if !a.takes(bytes.TrimSpace(kind)) {
		return a.invalid("is none of " + enumerated(a.Types))
	}
	if string(bytes.TrimSpace(last)) != "base64" {
		return a.invalid("is not in base64")
	}
	return a.checkData(&c)
}
