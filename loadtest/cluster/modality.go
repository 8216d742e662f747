package cluster

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// The modalities of media in features.
const (
	imageModality = "image"
	audioModality = "audio"
	videoModality = "video"
)

// servedMembers are the members of a content part that the workers take media by,
// in the order in which a worker looks for them, and their modalities.
var servedMembers = []struct{ member, modality string }{
	{"image_url", imageModality}, {"audio_url", audioModality}, {"input_audio", audioModality}, {"video_url", videoModality},
}

// isServed reports whether the workers have models for a modality.
func isServed(modality string) bool {
	return modality == imageModality || modality == audioModality || modality == videoModality
}

// mediumOf returns the member that makes a part one with a medium, and its
// modality; "" if it is none. A worker goes by the members of a part before its
// type; a part with two of them is refused.
func mediumOf(o object) (member, modality string, err error) {
	for name := range o {
		if isMediaMember(name) && !slices.ContainsFunc(servedMembers, func(s struct{ member, modality string }) bool { return s.member == name }) {
			return "", "", badValue("messages", "At most 0 media may be provided in one prompt: %s", name)
		}
	}
	for _, s := range servedMembers {
		if _, ok := o[s.member]; !ok {
			continue
		}
		if member != "" {
			return "", "", badValue("messages", "A part has %s and %s", member, s.member)
		}
		member, modality = s.member, s.modality
	}
	return member, modality, nil
}

// isMediaMember reports whether a member makes its part one with media.
func isMediaMember(name string) bool {
	return strings.HasSuffix(name, "_url") || strings.HasSuffix(name, "_embeds") ||
		name == "input_audio" || name == "image_pil"
}

// inputAudio reads {"data","format"} as the data URI that a worker makes of it.
func inputAudio(value json.RawMessage) (string, error) {
	o, _, err := parseObject(value)
	if err != nil {
		return "", badSchema("messages", "messages.content.input_audio: Input should be a valid dictionary")
	}
	data, err := o.text("data")
	if err != nil || data == "" {
		return "", badSchema("messages", "messages.content.input_audio.data: Field required")
	}
	format, err := o.text("format")
	if err != nil || format == "" {
		return "", badSchema("messages", "messages.content.input_audio.format: Field required")
	}
	return "data:audio/" + format + ";base64," + data, nil
}

// headSize is how many first bytes of a medium its decoder looks at.
const headSize = 12

// canLoad reports whether the decoder of a modality takes data that begin so, and
// are declared as that type. That of images takes anything here: tests have images
// that are none.
func canLoad(modality, declared string, head []byte) bool {
	if modality == imageModality {
		return strings.HasPrefix(declared, "image/")
	}
	if !strings.HasPrefix(declared, modality+"/") {
		return false
	}
	for _, f := range formats {
		if f.modality() == modality && bytes.HasPrefix(head, f.head[:min(len(f.head), headSize)]) {
			return true
		}
	}
	return false
}
