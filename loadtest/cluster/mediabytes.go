package cluster

import (
	"encoding/base64"
	"path"
	"strings"
)

// format is a kind of file for audio or video: what names of it end with, its media
// type, and what it begins with.
type format struct {
	extension, mediaType string
	head                 []byte
}

func (f format) modality() string {
	modality, _, _ := strings.Cut(f.mediaType, "/")
	return modality
}

// formats are those that the origin has. Heads are those of the shortest files that
// ffmpeg writes; what follows is noise, for the workers here decode nothing.
var formats = []format{
	{".wav", "audio/wav", []byte("RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data")},
	{".mp3", "audio/mpeg", []byte("\xff\xfb\x90\xc4\x00\x00\x00\x00\x00\x00\x00\x00")},
	{".flac", "audio/flac", []byte("fLaC\x00\x00\x00\x22\x12\x00\x12\x00")},
	{".ogg", "audio/ogg", []byte("OggS\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04\x00\x00\x00\x00\x05\x06\x07\x08\x01\x13OpusHead\x01\x01")},
	{".m4a", "audio/mp4", []byte("\x00\x00\x00\x1cftypM4A \x00\x00\x02\x00M4A isomiso2")},
	{".mp4", "video/mp4", []byte("\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isomiso2avc1mp41")},
	{".webm", "video/webm", []byte("\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81\x04\x42\xf3\x81\x08\x42\x82\x84webm")},
	{".mov", "video/quicktime", []byte("\x00\x00\x00\x14ftypqt  \x00\x00\x02\x00qt  ")},
	{".mpg", "video/mpeg", []byte("\x00\x00\x01\xba\x44\x00\x04\x00\x04\x01\x01\x89")},
}

// formatOf is the format of a name.
func formatOf(name string) (format, bool) {
	for _, f := range formats {
		if f.extension == path.Ext(name) {
			return f, true
		}
	}
	return format{}, false
}

// mediaType is the media type that a name stands for, "" if none.
func mediaType(name string) string {
	if f, ok := formatOf(name); ok {
		return f.mediaType
	}
	return imageType(name)
}

// MediaBytes is [ImageBytes] for audio and video too, whose names end with .wav,
// .mp3, .flac, .ogg, .m4a, .mp4, .webm, .mov or .mpg. They have the beginning of
// such a file, and nothing that could be played.
func MediaBytes(name string, n int) []byte {
	f, ok := formatOf(name)
	if !ok {
		return ImageBytes(name, n)
	}
	data := make([]byte, max(n, len(f.head)+nameTag))
	noise(name, data[copy(data, f.head):])
	return data
}

// MediaURI returns what [MediaBytes] does as a data URI.
func MediaURI(name string, n int) string {
	return "data:" + mediaType(name) + ";base64," + base64.StdEncoding.EncodeToString(MediaBytes(name, n))
}

// Medium is an image, audio file or video that an answer mentions.
type Medium struct {
	Modality string // image, audio or video
	Hash     string // its mm_hash
}

// ReplyWithMedia is [Reply] to a prompt with these media, in order.
func ReplyWithMedia(prompt string, media ...Medium) string {
	reply := Reply(prompt)
	for _, m := range media {
		reply += " " + mention(m.Modality, m.Hash)
	}
	return reply
}
