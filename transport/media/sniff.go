package media

import "bytes"

// sniffed is how many first bytes of an image tell its type. It is a multiple
// of 3.
const sniffed = 12

// sniff returns the type of an image by its first bytes, "" if it is none that
// is allowed. What its origin calls it is not asked.
func sniff(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}

// isAllowed reports whether a type in lower case is one that sniff knows.
func isAllowed(kind []byte) bool {
	switch string(kind) {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
		return true
	}
	return false
}
