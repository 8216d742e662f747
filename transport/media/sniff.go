package media

import (
	"bytes"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// sniffed is how many first bytes of a medium tell its type. It is a multiple
// of 3.
const sniffed = 48

// sniff returns the type of a medium by its first bytes, "" if it is none that is
// known of its modality. What its origin calls it is not asked.
func sniff(m wire.Modality, head []byte) string {
	switch m {
	case wire.Audio:
		return sniffAudio(head)
	case wire.Video:
		return sniffVideo(head)
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case isRIFF(head, "WEBP"):
		return "image/webp"
	}
	return ""
}

func sniffAudio(head []byte) string {
	switch {
	case isRIFF(head, "WAVE"):
		return "audio/wav"
	case bytes.HasPrefix(head, []byte("fLaC")):
		return "audio/flac"
	case bytes.HasPrefix(head, []byte("ID3")):
		return "audio/mpeg"
	case isOgg(head) && !isTheora(head):
		return "audio/ogg"
	case isMatroska(head, "webm"):
		return "audio/webm"
	case isAudioBrand(brand(head)), isMP4(brand(head)):
		return "audio/mp4" // sound alone is often in a file that is called a video
	}
	return sniffFrames(head)
}

// sniffFrames tells audio that is nothing but frames: each begins with eleven or
// twelve ones. (ISO 11172-3 section 2.4.2.3, ISO 13818-7 section 6.2.)
func sniffFrames(head []byte) string {
	if len(head) < 4 || head[0] != 0xff || head[1]&0xe0 != 0xe0 {
		return ""
	}
	const reserved = 0 // in the place of the layer; AAC has it there
	version, layer := head[1]>>3&3, head[1]>>1&3
	bitrate, rate := head[2]>>4, head[2]>>2&3
	switch {
	case layer == reserved && version >= 2: // twelve ones
		return "audio/aac"
	case layer != reserved && version != 1 && bitrate != 0xf && rate != 3:
		return "audio/mpeg"
	}
	return ""
}

func sniffVideo(head []byte) string {
	switch b := brand(head); {
	case b == "qt  ", isOldQuickTime(head):
		return "video/quicktime"
	case bytes.HasPrefix([]byte(b), []byte("3g")):
		return "video/3gpp"
	case isMP4(b):
		return "video/mp4"
	case isMatroska(head, "webm"):
		return "video/webm"
	case isMatroska(head, "matroska"):
		return "video/x-matroska"
	case isRIFF(head, "AVI "):
		return "video/x-msvideo"
	case isOgg(head) && isTheora(head):
		return "video/ogg"
	case bytes.HasPrefix(head, []byte("\x00\x00\x01\xba")), bytes.HasPrefix(head, []byte("\x00\x00\x01\xb3")):
		return "video/mpeg"
	}
	return ""
}

func isRIFF(head []byte, form string) bool {
	return len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == form
}

// brand returns the major brand of a file of the ISO base media format, such as
// MP4; "" if it is none. (ISO 14496-12 section 4.3.)
func brand(head []byte) string {
	if len(head) < 12 || string(head[4:8]) != "ftyp" {
		return ""
	}
	return string(head[8:12])
}

func isAudioBrand(brand string) bool { return brand == "M4A " || brand == "M4B " || brand == "F4A " }

// isMP4 reports whether a brand is neither of images, nor of sound alone, nor of
// QuickTime. There are hundreds for video.
func isMP4(brand string) bool {
	switch brand {
	case "", "qt  ", "avif", "avis", "mif1", "msf1", "heic", "heix", "heim", "heis", "hevc", "hevx", "jp2 ", "crx ":
		return false
	}
	return !isAudioBrand(brand)
}

// isOldQuickTime: before there were brands a file began with any of its parts.
func isOldQuickTime(head []byte) bool {
	if len(head) < 8 {
		return false
	}
	switch string(head[4:8]) {
	case "moov", "mdat", "wide":
		return true
	}
	return false
}

// isMatroska reports whether a file is of EBML (RFC 8794) and says that it has
// this type; WebM is one of them.
func isMatroska(head []byte, docType string) bool {
	return bytes.HasPrefix(head, []byte("\x1a\x45\xdf\xa3")) && bytes.Contains(head, []byte(docType))
}

// isOgg reports whether a file is an Ogg (RFC 3533). What is in it stands behind
// the head of its first page, which has one segment.
func isOgg(head []byte) bool { return bytes.HasPrefix(head, []byte("OggS\x00")) }

func isTheora(head []byte) bool {
	return len(head) > 28 && bytes.HasPrefix(head[28:], []byte("\x80theora"))
}
