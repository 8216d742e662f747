package load

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// Share is a part of a mixed load.
type Share struct {
	Request
	// Weight is how often such requests are made, beside the weights of the others.
	Weight int `json:"weight"`
}

// ParseMix makes a mix of what requests have in common and of text such as
// "chat=3,chat-stream=4,images-stream=1,generate=1": kinds of requests, "images" for
// chat with the images of common (one if it has none), with "-stream" if they
// are to be streamed, and weights. Only chat has images.
func ParseMix(common Request, text string) ([]Share, error) {
	var mix []Share
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		weight, err := strconv.Atoi(number)
		if err != nil || weight < 1 || weight > maxWeight {
			return nil, fmt.Errorf("load: a share of a mix is written as in chat=3, with a weight from 1 to %d, got %q", maxWeight, part)
		}
		s := Share{Request: common, Weight: weight}
		kind, streamed := strings.CutSuffix(name, "-stream")
		s.Kind, s.Stream = Kind(kind), streamed
		if kind == "images" {
			s.Kind, s.Images = Chat, max(1, s.Images)
		} else {
			s.Images, s.ImageBytes = 0, 0
		}
		s.Request = s.withDefaults()
		if err := s.validate(); err != nil {
			return nil, err
		}
		mix = append(mix, s)
	}
	return mix, nil
}

const maxWeight = 1000

// String is the share as ParseMix reads it.
func (s Share) String() string {
	name := string(s.Kind)
	if s.Images > 0 {
		name = "images"
	}
	if s.Stream {
		name += "-stream"
	}
	return fmt.Sprintf("%s=%d", name, s.Weight)
}

// shares are the kinds of requests of a run, and their bodies.
type shares struct {
	all    []Share
	bodies []*bodies
	total  int
	picked atomic.Uint64
}

func newShares(o Options) *shares {
	s := &shares{all: o.Mix}
	if len(s.all) == 0 {
		s.all = []Share{{Request: o.Request, Weight: 1}}
	}
	for _, share := range s.all {
		s.bodies = append(s.bodies, newBodies(share.Request))
		s.total += share.Weight
	}
	return s
}

// pick returns which share the next request is of. Each comes as often as its
// weight says in any stretch of a run, and without a period that could meet one of
// the server's: the multiples of the golden ratio are spread like that.
func (s *shares) pick() int {
	_, at := math.Modf(float64(s.picked.Add(1)) * math.Phi)
	left := at * float64(s.total)
	for i, share := range s.all[:len(s.all)-1] {
		if left -= float64(share.Weight); left < 0 {
			return i
		}
	}
	return len(s.all) - 1
}

func validateMix(mix []Share) error {
	for _, s := range mix {
		if s.Weight < 1 || s.Weight > maxWeight {
			return errors.New("load: a share of a mix has no weight")
		}
		if err := s.validate(); err != nil {
			return err
		}
	}
	return nil
}
