package wire

import "strings"

// Media are the images, audio files and videos of a request, in document
// order: where they stand in its messages, and what has taken the place of their
// URLs. It is not changed once made; legs share it.
type Media struct {
	messages []byte
	member   string // of the body, which has the messages
	parts    []mediaPart
	inlined  bool
	unnamed  bool // parts have no uuids
}

// mediaPart is a content part with a medium. Places are in the messages.
type mediaPart struct {
	lo, hi         int // of the part
	urlLo, urlHi   int // of its URL, or of the data of an input_audio: a JSON string
	formLo, formHi int // of the format of an input_audio, likewise; 0 for others
	modality       Modality
	uuid           bool   // the client gave it one
	uri            []byte // the JSON string that replaces the URL, or nil
}

// Len returns how many media there are. A nil Media has none.
func (m *Media) Len() int {
	if m == nil {
		return 0
	}
	return len(m.parts)
}

// Count returns how many media of a modality there are. A nil Media has none.
func (m *Media) Count(of Modality) (n int) {
	for i := range m.Len() {
		if m.parts[i].modality == of {
			n++
		}
	}
	return n
}

// Modality returns the modality of a medium.
func (m *Media) Modality(i int) Modality { return m.parts[i].modality }

// URL returns the URL of a medium as it stands in the body: a JSON string with
// its quotes. Of an input_audio it is the data, which is no URL: see
// [Media.Format].
func (m *Media) URL(i int) []byte { return m.messages[m.parts[i].urlLo:m.parts[i].urlHi] }

// Format returns the format of an input_audio as it stands in the body: a JSON
// string with its quotes. It is nil for media that have a URL.
func (m *Media) Format(i int) []byte {
	if p := &m.parts[i]; p.formHi > 0 {
		return m.messages[p.formLo:p.formHi]
	}
	return nil
}

// Inline returns the media with URLs replaced by those of uris that are not
// nil: JSON strings with their quotes.
func (m *Media) Inline(uris [][]byte) *Media {
	out := new(*m)
	out.parts = append([]mediaPart(nil), m.parts...)
	for i, uri := range uris {
		if uri != nil {
			out.parts[i].uri, out.inlined = uri, true
		}
	}
	return out
}

// part appends a medium's content part, with a uuid unless that is nil or it
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

// set puts the messages with inlined media, and with uuids unless that is nil,
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
	e.Set(m.member, append(t, m.messages[at:]))
}

// MaxMedia is how many media a request may have, or its features of one modality.
// Each costs more memory than its text may.
const MaxMedia = 10_000

// findMedia finds the media in the messages of a chat body. It returns nil if
// there are none, and refuses what is not served, and media whose URL could be
// read in two ways: nobody behind us may fetch what our guard has not seen.
func findMedia(messages []byte) (*Media, error) {
	m := &Media{messages: messages, member: "messages"}
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
			err = Invalid("invalid_media", "a message with media has more than one content")
		}
		return err == nil
	})
	if err != nil || len(m.parts) == 0 {
		return nil, err
	}
	return m, nil
}

// scan adds the media of a message's content.
func (m *Media) scan(content []byte) (err error) {
	EachElement(content, func(part []byte) bool {
		var p mediaPart
		var found bool
		if p, found, err = m.scanPart(part); found {
			err = m.add(p)
		}
		return err == nil
	})
	return err
}

func (m *Media) add(p mediaPart) error {
	if len(m.parts) == MaxMedia {
		return Faultf(LimitExceeded, "the request has more than %d media", MaxMedia)
	}
	m.parts = append(m.parts, p)
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
