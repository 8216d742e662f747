package cluster

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// hasOnly returns an error unless the object, which is the field of that name, has
// exactly these members; those that end with "?" may be missing.
func (o object) hasOnly(field string, members ...string) error {
	for _, name := range members {
		name, optional := strings.CutSuffix(name, "?")
		if _, ok := o[name]; !ok && !optional {
			return badSchema(field, "An encode must have %s.", name)
		}
	}
	for name := range o {
		if !slices.Contains(members, name) && !slices.Contains(members, name+"?") {
			return badSchema(field, "An encode must not have %s.", name)
		}
	}
	return nil
}

// knowledge is what the render service says of an image.
type knowledge int

const (
	notRendered  knowledge = iota // it has not seen the request
	unknownImage                  // it has, but no such image
	knownImage
)

// knownImage looks for an image with that hash for which ok is true among those
// that were rendered for the leg's request.
func (l *leg) knownImage(hash string, ok func(*renderedImage) bool) knowledge {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	request := l.cluster.requests.of(l.record.RequestID)
	if !request.rendered {
		return notRendered
	}
	for i := range request.images {
		if request.images[i].hash == hash && ok(&request.images[i]) {
			return knownImage
		}
	}
	return unknownImage
}

// checkEncodeTask refuses an encode whose tokens or placeholder are not those that
// render gave for an image with its hash. (Some image: of several with one hash
// any can stand for all.)
func (l *leg) checkEncodeTask(task *prompt) error {
	im := &task.images[0]
	known := l.knownImage(im.hash, func(known *renderedImage) bool {
		return known.modality == im.modality && slices.Equal(known.ids, task.ids[1:]) && isMoved(im.placeholder, known.placeholder)
	})
	if known == unknownImage {
		return badValue("features", "Hash, tokens and placeholder are not those of an image that was rendered.")
	}
	return nil
}

// isMoved reports whether a placeholder is the rendered one, byte for byte in all
// its members but offset, which is 1.
func isMoved(placeholder, rendered json.RawMessage) bool {
	got, _, errA := parseObject(placeholder)
	want, _, errB := parseObject(rendered)
	if errA != nil || errB != nil || len(got) != len(want) || string(got["offset"]) != "1" {
		return false
	}
	for name := range want {
		if name != "offset" && !bytes.Equal(got[name], want[name]) {
			return false
		}
	}
	return true
}
