package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

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
	metadata    string          // the item of mm_metadata, likewise
	stripped    bool            // tensors has no pixels
}

// placeholderTokens is how many tokens stand for a medium of so many bytes.
func placeholderTokens(size int) int { return 4 + size%5 }

// placeholderWords are the words of a placeholder of so many tokens. First and
// last differ from the rest so that a span that is cut out one off is another one.
func placeholderWords(modality string, length int) []string {
	words := []string{"<|" + modality + "_start|>"}
	for range length - 2 {
		words = append(words, "<|"+modality+"_pad|>")
	}
	return append(words, "<|"+modality+"_end|>")
}

// ImageHash is the mm_hash of an image, audio file or video with these bytes whose part has no uuid,
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

// readMedium reads a content part that has a medium of a modality in a member.
func readMedium(part json.RawMessage, o object, member, modality string, h hashing) (im image, err error) {
	im.modality, im.part = modality, sha256.Sum256(part)
	if im.uuid, err = o.text("uuid"); err != nil {
		return im, err
	}
	var url string
	if member == "input_audio" {
		url, err = inputAudio(o[member])
	} else {
		url, err = mediaURL(member, o[member])
	}
	if err != nil {
		return im, err
	}
	size := len(url)
	if isRemote(url) {
		im.remote, im.content = url, ImageHash([]byte(url)) // the address stands for the bytes
	} else if size, im.content, err = readDataURI(modality, url); err != nil {
		return im, err
	}
	im.hash = h.hash(im.content, im.uuid)
	im.length = placeholderTokens(size)
	return im, nil
}

// mediaURL reads a URL that is bare or in an object.
func mediaURL(member string, value json.RawMessage) (string, error) {
	var url string
	if json.Unmarshal(value, &url) == nil && url != "" {
		return url, nil
	}
	o, _, err := parseObject(value)
	if err == nil {
		url, err = o.text("url")
	}
	if err != nil || url == "" {
		return "", badSchema("messages", "messages.content.%s: Input should be a URL or have one", member)
	}
	return url, nil
}

func isRemote(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
}

// readDataURI returns the size and the hash of the bytes in a data URI, which must
// be of a modality.
func readDataURI(modality, url string) (size int, hash string, err error) {
	scheme, rest, _ := strings.Cut(url, ":")
	if !strings.EqualFold(scheme, "data") {
		return 0, "", badValue("messages", "The URL must be either a HTTP or data URL.")
	}
	form, text, ok := strings.Cut(rest, ",")
	if !ok || !strings.HasSuffix(strings.ToLower(form), ";base64") {
		return 0, "", badValue("messages", "Only base64 data URLs are supported for now.")
	}
	size, hash, head, ok := readStandIn(text)
	if !ok {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(data) == 0 {
			return 0, "", badValue("messages", "Failed to load %s: it is not base64, or empty", modality)
		}
		size, hash, head = len(data), ImageHash(data), data[:min(headSize, len(data))]
	}
	if !canLoad(modality, strings.ToLower(form), head) {
		return 0, "", badValue("messages", "Failed to load %s: it is none", modality)
	}
	return size, hash, nil
}

// mention is what an answer says of a medium.
func mention(modality, hash string) string {
	return "[" + modality + " " + hash[:min(8, len(hash))] + "]"
}
