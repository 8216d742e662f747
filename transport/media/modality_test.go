package media

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// ebml is the head of a file of EBML of a type, as muxers write it: with a length
// of eight bytes, or of one.
func ebml(docType string, long bool) string {
	elements := "\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81\x04\x42\xf3\x81\x08\x42\x82" + string([]byte{0x80 | byte(len(docType))}) + docType
	if long {
		return "\x1a\x45\xdf\xa3\x01\x00\x00\x00\x00\x00\x00" + string([]byte{byte(len(elements))}) + elements
	}
	return "\x1a\x45\xdf\xa3" + string([]byte{0x80 | byte(len(elements))}) + elements
}

func ogg(codec string) string {
	return "OggS\x00\x02" + strings.Repeat("\x00", 20) + "\x01\x1e" + codec
}

// TestTypesOfAudioAndVideo: the bytes decide, and what for they were asked.
func TestTypesOfAudioAndVideo(t *testing.T) {
	const padding = "0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, tt := range []struct{ body, audio, video string }{
		{"RIFF\x01\x02\x03\x04WAVEfmt " + padding, "audio/wav", ""},
		{"RIFF\x01\x02\x03\x04WAV", "", ""},
		{"RIFF\x01\x02\x03\x04AVI LIST" + padding, "", "video/x-msvideo"},
		{"ID3\x04" + padding, "audio/mpeg", ""},
		{"\xff\xfb\x90\xc4" + padding, "audio/mpeg", ""}, // MPEG 1 layer III
		{"\xff\xe3\x18\xc4" + padding, "audio/mpeg", ""}, // 2.5
		{"\xff\xf1\x50\x80" + padding, "audio/aac", ""},
		{"\xff\xf9\x50\x80" + padding, "audio/aac", ""},
		{"\xff\xfb\xf0\xc4" + padding, "", ""}, // no such bit rate
		{"\xff\xfb\x9c\xc4" + padding, "", ""}, // no such sample rate
		{"\xff\xeb\x90\xc4" + padding, "", ""}, // no such version
		{"\xff\xe1\x50\x80" + padding, "", ""}, // eleven ones are not enough for AAC
		{"\xff\xfb\x90", "", ""},
		{"\xff\xd8\xff\xe0" + padding, "", ""}, // a JPEG
		{"fLaC\x00" + padding, "audio/flac", ""},
		{ogg("\x01vorbis") + padding, "audio/ogg", ""},
		{ogg("OpusHead") + padding, "audio/ogg", ""},
		{ogg("\x80theora") + padding, "", "video/ogg"},
		{"OggX" + padding, "", ""},
		{ebml("webm", false) + padding, "audio/webm", "video/webm"},
		{ebml("webm", true) + padding, "audio/webm", "video/webm"},
		{ebml("matroska", true) + padding, "", "video/x-matroska"},
		{ebml("else", true) + padding, "", ""},
		{"\x00\x00\x00\x1cftypM4A \x00\x00\x02\x00" + padding, "audio/mp4", ""},
		{"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00" + padding, "audio/mp4", "video/mp4"},
		{"\x00\x00\x00\x18ftypmp42", "audio/mp4", "video/mp4"},
		{"\x00\x00\x00\x14ftypqt  " + padding, "", "video/quicktime"},
		{"\x00\x00\x00\x08wide\x00\x00\x01\x00mdat" + padding, "", "video/quicktime"},
		{"\x00\x00\x10\x00moov" + padding, "", "video/quicktime"},
		{"\x00\x00\x00\x18ftyp3gp4" + padding, "audio/mp4", "video/3gpp"},
		{"\x00\x00\x00\x1cftypavif" + padding, "", ""},
		{"\x00\x00\x00\x1cftypheic" + padding, "", ""},
		{"\x00\x00\x00\x18fty", "", ""},
		{"\x00\x00\x01\xba\x44" + padding, "", "video/mpeg"},
		{"\x00\x00\x01\xb3" + padding, "", "video/mpeg"},
		{png + padding, "", ""},
		{"GIF89a" + padding, "", ""},
		{"<html>" + secret + "</html>", "", ""},
		{"#EXTM3U\n" + padding, "", ""}, // a list of further URLs
		{"", "", ""},
	} {
		for m, want := range map[wire.Modality]string{wire.Audio: tt.audio, wire.Video: tt.video} {
			for _, claim := range []string{"", m.String() + "/mp4", "image/png", "nonsense"} {
				got, err := hosting(says(t, head200+"Content-Type: "+claim+"\r\n\r\n"+tt.body)).fetcher(t).Fetch(t.Context(), m, "http://img.test/")
				if want == "" {
					wantFault(t, err, wire.BadRequest, "media_fetch_failed")
					if !strings.Contains(err.Error(), "the "+noun(m)+" at http://img.test could not be fetched: it is none of "+m.String()+"/") {
						t.Errorf("%.20q: %v", tt.body, err)
					}
				} else if text := `"data:` + want + ";base64," + base64.StdEncoding.EncodeToString([]byte(tt.body)) + `"`; err != nil || string(got) != text {
					t.Errorf("%.20q as %s: %s, %v; want %s", tt.body, m, got, err, text)
				}
			}
			if _, err := hosting(says(t, head200+"\r\n"+tt.body)).fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/"); err == nil && want != "" {
				t.Errorf("%.20q is an image", tt.body)
			}
		}
	}
}

// TestTypesThatAreNotAllowed are refused though they are known, and each modality
// has a size of its own.
func TestTypesThatAreNotAllowed(t *testing.T) {
	f := hosting(says(t, head200+"\r\n"+"fLaC"+strings.Repeat("x", 96))).fetcher(t, func(s *Settings) {
		s.Allowed[wire.Audio].Types = []string{"audio/wav", "audio/mpeg"}
	})
	_, err := f.Fetch(t.Context(), wire.Audio, "http://img.test/")
	wantFault(t, err, wire.BadRequest, "media_fetch_failed")
	f = hosting(says(t, head200+"\r\n"+"fLaC"+strings.Repeat("x", 96))).fetcher(t, func(s *Settings) { s.Allowed[wire.Audio].MaxSize = 99 })
	_, err = f.Fetch(t.Context(), wire.Audio, "http://img.test/")
	wantFault(t, err, wire.LimitExceeded, "limit_exceeded")
	if err := f.allowed[wire.Video].Unserved(); err != nil {
		t.Error(err)
	}
	none := Allowed{Modality: wire.Video, MaxSize: 1}
	wantFault(t, none.Unserved(), wire.BadRequest, "invalid_media")
}

func TestParseTypes(t *testing.T) {
	for _, tt := range []struct {
		m     wire.Modality
		names []string
		want  []string // nil: refused
	}{
		{wire.Image, nil, []string{}},
		{wire.Image, []string{" IMAGE/PNG ", "image/jpeg", "image/png"}, []string{"image/png", "image/jpeg"}},
		{wire.Audio, []string{"audio/mp3", "audio/mpeg", "audio/x-wav"}, []string{"audio/mpeg", "audio/wav"}},
		{wire.Video, []string{"video/mkv"}, []string{"video/x-matroska"}},
		{wire.Audio, []string{"audio/midi"}, nil}, {wire.Audio, []string{"video/mp4"}, nil}, {wire.Image, []string{"image/*"}, nil}, {wire.Video, []string{""}, nil},
	} {
		if got, err := ParseTypes(tt.m, tt.names); !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%v: %q, %v", tt.names, got, err)
		}
	}
	for m := range wire.Modalities { // what can be allowed is told apart, and what is told apart can be
		if types, err := ParseTypes(m, DefaultTypes(m)); err != nil || !slices.Equal(types, known[m]) {
			t.Errorf("%v, %v", types, err)
		}
	}
	for other, canonical := range otherNames {
		if m := strings.SplitN(other, "/", 2)[0]; !slices.Contains(append(DefaultTypes(wire.Audio), DefaultTypes(wire.Video)...), canonical) || !strings.HasPrefix(canonical, m+"/") {
			t.Errorf("%s stands for %s", other, canonical)
		}
	}
}

func TestInlinedAudioAndVideo(t *testing.T) {
	audio, video := allowed(10)[wire.Audio], allowed(10)[wire.Video]
	for _, tt := range []struct {
		a    Allowed
		uri  string
		code string
	}{
		{audio, "data:audio/wav;base64,ZkxhQw==", ""}, {audio, "data:AUDIO/X-WAV;base64,ZkxhQw==", ""}, {audio, "data:audio/webm;codecs=opus;base64,ZkxhQw==", ""}, {audio, `data:audio\/mp3;base64,ZkxhQw==`, ""},
		{video, "data:video/mp4;base64,AAABug==", ""}, {video, "data:video/mov;base64,AAABug==", ""},
		{audio, "data:video/mp4;base64,AAAA", "invalid_media"}, {video, "data:audio/mp4;base64,AAAA", "invalid_media"}, {video, "data:image/png;base64,AAAA", "invalid_media"},
		{video, "data:video/jpeg;base64,AAAA,AAAA", "invalid_media"},                                                                    // frames, for some workers
		{audio, "data:audio/mpeg;base64,I0VYVE0zVQ==", "invalid_media"}, {video, "data:video/mp4;base64,I0VYVE0zVQ==", "invalid_media"}, // a list of URLs
		{video, "data:video/mp4;base64,ZkxhQw==", "invalid_media"},
		{audio, "data:audio/wav;base64,AAAAAAAAAAAAAAAA", "limit_exceeded"}, {video, "data:video/mp4;base64,", "invalid_media"}, {video, "data:video/mp4,AAAA", "invalid_media"},
	} {
		err := tt.a.CheckDataURI([]byte(`"` + tt.uri + `"`))
		if tt.code == "" && err != nil || tt.code != "" && (err == nil || wire.FaultOf(err).ErrorCode() != tt.code) {
			t.Errorf("%s: %v", tt.uri, err)
		}
	}
	for _, tt := range []struct{ format, data, code string }{
		{"wav", "ZkxhQw==", ""}, {"WAV", "ZkxhQw==", ""}, {`\u0077av`, `ZkxhQw\u003d\u003d`, ""}, {"mp3", "ZkxhQw==", ""}, {"m4a", "ZkxhQw==", ""}, {"opus", "ZkxhQw==", ""}, {"flac", "ZkxhQw==", ""},
		{"", "AAAA", "invalid_media"}, {"wav;base64", "AAAA", "invalid_media"}, {"wav,", "AAAA", "invalid_media"}, {"audio/wav", "AAAA", "invalid_media"}, {" wav", "AAAA", "invalid_media"},
		{"mid", "AAAA", "invalid_media"}, {strings.Repeat("w", 10_000), "AAAA", "invalid_media"}, {`wav\u00e4`, "AAAA", "invalid_media"},
		{"wav", "", "invalid_media"}, {"wav", "AAA", "invalid_media"}, {"wav", "AA AA", "invalid_media"}, {"wav", "data:audio/wav;base64,AAAA", "invalid_media"}, {"wav", "http://" + secret, "invalid_media"},
		{"mp3", "I0VYVE0zVQ==", "invalid_media"}, // a list of URLs
		{"wav", "AAAAAAAAAAAAAAAA", "limit_exceeded"},
	} {
		err := audio.CheckInput([]byte(`"`+tt.format+`"`), []byte(`"`+tt.data+`"`))
		if tt.code == "" && err != nil || tt.code != "" && (err == nil || wire.FaultOf(err).ErrorCode() != tt.code || strings.Contains(err.Error(), secret)) {
			t.Errorf("%.40s %s: %v", tt.format, tt.data, err)
		}
	}
	format, data := []byte(`"wav"`), []byte(`"ZkxhQw=="`)
	if n := testing.AllocsPerRun(10, func() {
		if audio.CheckInput(format, data) != nil {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzSniff: no head breaks it, and it names nothing that cannot be allowed.
func FuzzSniff(f *testing.F) {
	for _, head := range []string{ebml("webm", true), ogg("\x80theora"), "\x00\x00\x00\x18ftypmp42", "\xff\xf1\x50\x80", "RIFF1234AVI ", ""} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		head = head[:min(len(head), sniffed)]
		for m := range wire.Modalities {
			if kind := sniff(m, head); kind != "" && !slices.Contains(known[m], kind) {
				t.Errorf("%q is %q", head, kind)
			}
		}
	})
}
