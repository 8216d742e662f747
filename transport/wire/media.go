package wire

import "strings"

// Media are the images of a chat request, in document order: where they stand
// in its messages, and what has taken the place of their URLs. It is not
// changed once made; legs share it.
type Media struct {
	messages []byte
	parts    []mediaPart
	inlined  bool
}

// mediaPart is a content part with an image. Places are in the messages.
type mediaPart struct {
	lo, hi       int    // of the part
	urlLo, urlHi int    // of its URL, a JSON string
	uuid         bool   // the client gave it one
	uri          []byte // the JSON string that replaces the URL, or nil
}

// Len returns how many images there are. A nil Media has none.
func (m *Media) Len() int {
	if m == nil {
		return 0
	}
	return len(m.parts)
}

// URL returns the URL of an image as it stands in the body: a JSON string with
// its quotes.
func (m *Media) URL(i int) []byte { return m.messages[m.parts[i].urlLo:m.parts[i].urlHi] }

// Inline returns the media with URLs replaced by those of uris that are not
// nil: JSON strings with their quotes.
func (m *Media) Inline(uris [][]byte) *Media {
	out := &Media{messages: m.messages, parts: append([]mediaPart(nil), m.parts...), inlined: m.inlined}
	for i, uri := range uris {
		if uri != nil {
			out.parts[i].uri, out.inlined = uri, true
		}
	}
	return out
}

// part appends an image's content part, with a uuid unless that is nil or it
// has one.
func (m *Media) part(t Text, i int, uuid []byte) Text {
	p := &m.parts[i]
	if p.uri == nil {
		t = append(t, m.messages[p.lo:p.hi-1])
	} else {
		t = append(t, m.messages[p.lo:p.urlLo], p.uri, m.messages[p.urlHi:p.hi-1])
	}
	if uuid != nil && !p.uuid {
		t = append(t, []byte(`,"uuid":`), uuid)
	}
	return append(t, closeBrace)
}

// set puts the messages with inlined images, and with uuids unless that is nil,
// into a leg; without either they stay as they came.
func (m *Media) set(e *Edit, uuids []Span) {
	if m == nil || !m.inlined && uuids == nil {
		return
	}
	var t Text
	at := 0
	for i, p := range m.parts {
		var uuid []byte
		if uuids != nil {
			uuid = uuids[i].Hash
		}
		t = append(t, m.messages[at:p.lo])
		t = m.part(t, i, uuid)
		at = p.hi
	}
	e.Set("messages", append(t, m.messages[at:]))
}

// findMedia finds the images in the messages of a chat body. It returns nil if
// there are none, and refuses other media, and images whose URL could be read
// in two ways: nobody behind us may fetch what our guard has not seen.
func findMedia(messages []byte) (*Media, error) {
	m := &Media{messages: messages}
	var err error
	EachElement(messages, func(message []byte) bool {
		contents, before := 0, len(m.parts)
		EachMember(message, func(name, content []byte) bool {
			if NameIs(name, "content") {
				contents++
				err = m.scan(content)
			}
			return err == nil
		})
		if err == nil && contents > 1 && len(m.parts) > before {
			err = Invalid("invalid_media", "a message with an image has more than one content")
		}
		return err == nil
	})
	if err != nil || len(m.parts) == 0 {
		return nil, err
	}
	return m, nil
}

// scan adds the images of a message's content.
func (m *Media) scan(content []byte) (err error) {
	EachElement(content, func(part []byte) bool {
		var p mediaPart
		var found bool
		if p, found, err = m.scanPart(part); found {
			m.parts = append(m.parts, p)
		}
		return err == nil
	})
	return err
}

// otherMedia are members of a content part, and types of parts, by which
// workers find media that are not served.
var otherMedia = []string{"image_embeds", "image_pil", "input_image", "audio_url", "input_audio", "audio_embeds", "audio",
	"video_url", "input_video", "video_embeds", "video", "image"}

const imageURL = "image_url"

// scanPart looks at one content part. Whatever its type says, it is an image if
// it has an image_url: that is how workers read it. A member that is null is
// not there, unless workers would take media that they know by uuid for it.
func (m *Media) scanPart(part []byte) (p mediaPart, found bool, err error) {
	urls := 0
	var isImage, typed, known, blank bool
	EachMember(part, func(name, value []byte) bool {
		switch {
		case NameIs(name, imageURL):
			if urls++; urls > 1 {
				err = Invalid("invalid_media", "a content part has more than one image_url")
			} else if blank = blank || IsNull(value); !IsNull(value) {
				found = true
				err = m.locate(&p, part, value)
			}
		case NameIs(name, "uuid"):
			p.uuid, known = true, !IsNull(value)
		case NameIs(name, "type"):
			kind, _ := Unquote(value)
			isImage, typed = isImage || strings.EqualFold(kind, imageURL), !IsNull(value)
			err = refuseOther(kind)
		default:
			for _, other := range otherMedia {
				if !NameIs(name, other) {
					continue
				}
				if blank = blank || IsNull(value); !IsNull(value) {
					err = refuseOther(other)
				}
			}
		}
		return err == nil
	})
	if err == nil && !found && (isImage || blank && (known || !typed)) {
		err = Invalid("invalid_media", "a content part of media has no image_url")
	}
	return p, found && err == nil, err
}

func refuseOther(kind string) error {
	for _, other := range otherMedia {
		if strings.EqualFold(kind, other) {
			return Invalid("invalid_media", "a content part has %q: images by image_url are served, other media are not", other)
		}
	}
	return nil
}

// locate notes where a part and its URL stand.
func (m *Media) locate(p *mediaPart, part, value []byte) error {
	url := value
	if IsObject(value) {
		url = nil
		twice := false
		EachMember(value, func(name, v []byte) bool {
			if NameIs(name, "url") {
				twice = url != nil
				url = v
			}
			return !twice
		})
		if twice {
			return Invalid("invalid_media", "an image_url has more than one url")
		}
	}
	if len(url) == 0 || url[0] != '"' {
		return Invalid("invalid_media", "an image_url is neither a string nor an object with the string url")
	}
	if !IsDataURI(url) && !hasScheme(url, "http://") && !hasScheme(url, "https://") {
		return Invalid("invalid_media", "an image_url must be an http, https or data URL")
	}
	p.lo, p.urlLo = cap(m.messages)-cap(part), cap(m.messages)-cap(url)
	p.hi, p.urlHi = p.lo+len(part), p.urlLo+len(url)
	return nil
}

// IsDataURI reports whether a JSON string holds a data URI.
func IsDataURI(url []byte) bool { return hasScheme(url, "data:") }

// hasScheme reports whether a JSON string begins with a scheme, whose case and
// spelling by escapes do not matter.
func hasScheme(url []byte, scheme string) bool {
	var text []byte
	for in := url[1 : len(url)-1]; len(in) > 0 && len(text) < len(scheme); {
		n := 1
		if in[0] == '\\' {
			text, n = appendEscape(text, in)
		} else {
			text = append(text, in[0])
		}
		in = in[n:]
	}
	return len(text) >= len(scheme) && strings.EqualFold(string(text[:len(scheme)]), scheme)
}
