package wire

import "strings"

// served are the members of a content part by which workers find media, and the
// modality that each is of.
var served = [...]struct {
	name     string
	modality Modality
}{
	{"image_url", Image}, {"audio_url", Audio}, {inputAudio, Audio}, {"video_url", Video},
}

// inputAudio is the member that holds data itself, and no URL.
const inputAudio = "input_audio"

// otherMedia are members of a content part, and types of parts, by which
// workers find media that are not served.
var otherMedia = []string{"image_embeds", "image_pil", "input_image", "audio_embeds", "audio",
	"input_video", "video_embeds", "video", "image", "prompt_embeds"}

// partScan is what is known of a content part while its members are read.
type partScan struct {
	part  mediaPart
	found int // the member that it is a medium by, as its place in served and 1; 0 is none
	typed int // what its type says, likewise
	// seen are the members that were there, null or not.
	seen [len(served)]bool
	// hasType, hasUUID: they are there and not null. blank: a member of media is
	// null.
	hasType, hasUUID, blank bool
}

// scanPart looks at one content part. Whatever its type says, it is a medium if
// it has a member of one: that is how workers read it. A member that is null is
// not there, unless workers would take media that they know by uuid for it.
func (m *Media) scanPart(part []byte) (p mediaPart, found bool, err error) {
	var s partScan
	EachMember(part, func(name, value []byte) bool {
		err = s.member(m, part, name, value)
		return err == nil
	})
	switch {
	case err != nil:
	case s.found == 0 && (s.typed > 0 || s.blank && (s.hasUUID || !s.hasType)):
		err = Invalid("invalid_media", "a content part of media has none")
	case s.found > 1 && s.blank && (s.hasUUID || !s.hasType): // a worker may look at what is null first
		err = Invalid("invalid_media", "a content part has %q, and another medium that is null", served[s.found-1].name)
	case s.found > 0 && s.typed > 0 && s.typed != s.found:
		err = Invalid("invalid_media", "a content part has the type %q and %q", served[s.typed-1].name, served[s.found-1].name)
	}
	return s.part, s.found > 0 && err == nil, err
}

// member takes a member of the part.
func (s *partScan) member(m *Media, part, name, value []byte) error {
	for i := range served {
		if NameIs(name, served[i].name) {
			return s.medium(m, i, part, value)
		}
	}
	switch {
	case NameIs(name, "uuid"):
		s.part.uuid, s.hasUUID = true, !IsNull(value)
	case NameIs(name, "type"):
		return s.kind(value)
	default:
		for _, other := range otherMedia {
			if !NameIs(name, other) {
				continue
			}
			if s.blank = s.blank || IsNull(value); !IsNull(value) {
				return refuseOther(other)
			}
		}
	}
	return nil
}

// kind takes the part's type.
func (s *partScan) kind(value []byte) error {
	text, _ := Unquote(value)
	s.hasType = !IsNull(value)
	for i := range served {
		if strings.EqualFold(text, served[i].name) {
			s.typed = i + 1
		}
	}
	return refuseOther(text)
}

func refuseOther(kind string) error {
	for _, other := range otherMedia {
		if strings.EqualFold(kind, other) {
			return Invalid("invalid_media", "a content part has %q: images, audio and video by image_url, audio_url, input_audio and video_url are served, other media are not", other)
		}
	}
	return nil
}

// medium takes a member of media that are served.
func (s *partScan) medium(m *Media, i int, part, value []byte) error {
	name := served[i].name
	if s.seen[i] {
		return Invalid("invalid_media", "a content part has more than one %s", name)
	}
	s.seen[i] = true
	if IsNull(value) {
		s.blank = true
		return nil
	}
	if s.found > 0 {
		return Invalid("invalid_media", "a content part has %s and %s", served[s.found-1].name, name)
	}
	s.found, s.part.modality = i+1, served[i].modality
	s.part.lo = cap(m.messages) - cap(part)
	s.part.hi = s.part.lo + len(part)
	if name == inputAudio {
		return s.part.data(m, value)
	}
	return s.part.url(m, name, value)
}

// url notes where a URL stands: the value itself, or its member url.
func (p *mediaPart) url(m *Media, name string, value []byte) error {
	url := value
	if IsObject(value) {
		var twice bool
		if url, twice = only(value, "url"); twice {
			return Invalid("invalid_media", "the %s of a content part has more than one url", name)
		}
	}
	if len(url) == 0 || url[0] != '"' {
		return Invalid("invalid_media", "the %s of a content part is neither a string nor an object with the string url", name)
	}
	if !IsDataURI(url) && !hasScheme(url, "http://") && !hasScheme(url, "https://") {
		return Invalid("invalid_media", "the %s of a content part must be an http, https or data URL", name)
	}
	p.urlLo = cap(m.messages) - cap(url)
	p.urlHi = p.urlLo + len(url)
	return nil
}

// data notes where the data and the format of an input_audio stand.
func (p *mediaPart) data(m *Media, value []byte) error {
	data, twice := only(value, "data")
	format, again := only(value, "format")
	switch {
	case twice || again:
		return Invalid("invalid_media", "the input_audio of a content part has more than one data or format")
	case len(data) == 0 || data[0] != '"' || len(format) == 0 || format[0] != '"':
		return Invalid("invalid_media", "the input_audio of a content part is no object with the strings data and format")
	}
	p.urlLo, p.formLo = cap(m.messages)-cap(data), cap(m.messages)-cap(format)
	p.urlHi, p.formHi = p.urlLo+len(data), p.formLo+len(format)
	return nil
}

// only returns the member of an object, nil if it is not there, and whether there
// is more than one.
func only(object []byte, name string) (value []byte, twice bool) {
	EachMember(object, func(n, v []byte) bool {
		if NameIs(n, name) {
			twice = value != nil
			value = v
		}
		return !twice
	})
	return value, twice
}
