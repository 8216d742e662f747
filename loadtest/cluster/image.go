package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// imageModality is the modality of images in features.
const imageModality = "image"

// image is one medium of a prompt, as a worker sees it. Of an item of features
// the fields of a part are empty.
type image struct {
	modality string
	hash     string // its mm_hash
	offset   int    // of its placeholder tokens in the prompt's
	length   int    // how many these are

	part    [sha256.Size]byte // of the content part, byte for byte
	content string            // hash of the bytes, whatever the mm_hash is
	uuid    string            // the part's; "" if it has none
	remote  string            // the URL, if the bytes were not in the part

	placeholder json.RawMessage // of features, as it came
	tensors     string          // the item of kwargs_data; "" is null
}

// The words of an image's placeholder. First and last differ from the rest so
// that a span that is cut out one off is another one.
const (
	imageStart = "<|image_start|>"
	imagePad   = "<|image_pad|>"
	imageEnd   = "<|image_end|>"
)

// placeholderTokens is how many tokens stand for an image of so many bytes.
func placeholderTokens(size int) int { return 4 + size%5 }

// placeholderWords are the words of a placeholder of so many tokens.
func placeholderWords(length int) []string {
	words := []string{imageStart}
	for range length - 2 {
		words = append(words, imagePad)
	}
	return append(words, imageEnd)
}

// ImageHash is the mm_hash of an image with these bytes whose part has no uuid,
// in a request without mm_processor_kwargs and media_io_kwargs.
func ImageHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// hashing is what a request says that changes the hashes of its images.
type hashing struct {
	processor string // mm_processor_kwargs; "" if there are none
	loading   string // media_io_kwargs, likewise
}

func readHashing(o object) (h hashing, err error) {
	if h.processor, err = readKwargs(o, "mm_processor_kwargs"); err != nil {
		return h, err
	}
	h.loading, err = readKwargs(o, "media_io_kwargs")
	return h, err
}

// readKwargs reads an object in one spelling, whatever the order of its keys; ""
// if it has no members.
func readKwargs(o object, name string) (string, error) {
	fields, err := o.inner(name)
	if err != nil || len(fields) == 0 {
		return "", err
	}
	v, err := readExactly(o[name])
	if err != nil {
		return "", badSchema(name, "%s: %v", name, err)
	}
	return string(encode(v)), nil
}

// hash is the mm_hash of an image. A uuid stands for the bytes and how they
// were loaded, but not for how they are processed.
func (h hashing) hash(content, uuid string) string {
	hash := uuid
	if uuid == "" {
		hash = content
		if h.loading != "" {
			hash = ImageHash([]byte(hash + h.loading))
		}
	}
	if h.processor != "" {
		hash = ImageHash([]byte(hash + h.processor))
	}
	return hash
}

// readImage reads a content part that has an image.
func readImage(part json.RawMessage, o object, h hashing) (im image, err error) {
	im.modality, im.part = imageModality, sha256.Sum256(part)
	if im.uuid, err = o.text("uuid"); err != nil {
		return im, err
	}
	url, err := imageURL(o["image_url"])
	if err != nil {
		return im, err
	}
	size := len(url)
	if isRemote(url) {
		im.remote, im.content = url, ImageHash([]byte(url)) // the address stands for the bytes
	} else if size, im.content, err = readDataURI(url); err != nil {
		return im, err
	}
	im.hash = h.hash(im.content, im.uuid)
	im.length = placeholderTokens(size)
	return im, nil
}

// imageURL reads a URL that is bare or in an object.
func imageURL(value json.RawMessage) (string, error) {
	var url string
	if json.Unmarshal(value, &url) == nil && url != "" {
		return url, nil
	}
	o, _, err := parseObject(value)
	if err == nil {
		url, err = o.text("url")
	}
	if err != nil || url == "" {
		return "", badSchema("messages", "messages.content.image_url: Input should be a URL or have one")
	}
	return url, nil
}

func isRemote(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
}

// readDataURI returns the size and the hash of the bytes in a data URI.
func readDataURI(url string) (size int, hash string, err error) {
	scheme, rest, _ := strings.Cut(url, ":")
	if !strings.EqualFold(scheme, "data") {
		return 0, "", badValue("messages", "The URL must be either a HTTP or data URL.")
	}
	form, text, ok := strings.Cut(rest, ",")
	if !ok || !strings.HasSuffix(strings.ToLower(form), ";base64") {
		return 0, "", badValue("messages", "Only base64 data URLs are supported for now.")
	}
	if size, hash, ok := readStandIn(text); ok {
		return size, hash, nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) == 0 {
		return 0, "", badValue("messages", "Failed to load image: it is not base64, or empty")
	}
	return len(data), ImageHash(data), nil
}

// mention is what an answer says of an image.
func mention(hash string) string { return "[image " + hash[:min(8, len(hash))] + "]" }
