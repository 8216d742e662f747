package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
)

// clientRequest is what the cluster remembers of one request of a client, over
// all its legs. Guarded by Cluster.mu.
type clientRequest struct {
	rendered bool // the render service has answered, as follows
	tokens   [sha256.Size]byte
	images   []renderedImage // not changed any more
	// encoding has the encode legs that are under way or answered, by hash.
	encoding map[string][]*encoding
	// descriptors are those given out, by hash.
	descriptors map[string][]json.RawMessage
}

// renderedImage is what the render service said of an image.
type renderedImage struct {
	image
	ids       []int             // of its placeholder
	tensorSum [sha256.Size]byte // of the item of kwargs_data
}

// encoding is an encode leg's work on an image.
type encoding struct {
	leg      string // its X-Request-Id
	answered bool   // to the end
	over     bool   // unanswered
}

// clientRequests is what is known of the newest requests by their ids. Guarded
// by Cluster.mu.
type clientRequests struct {
	byID map[string]*clientRequest
	ids  bounded[string]
}

func newClientRequests(limit int) clientRequests {
	return clientRequests{byID: map[string]*clientRequest{}, ids: newBounded[string](limit)}
}

// of returns the request that a leg's id belongs to. An id that looks like that
// of a retry can be a client's own too, so it is looked up as it is first.
func (r *clientRequests) of(legID string) *clientRequest {
	for _, id := range []string{legID, withoutRetry(legID)} {
		if known := r.byID[id]; known != nil {
			return known
		}
	}
	return r.renew(legID)
}

// all returns what is known by a leg's id as it is, and without its "-r<n>". The
// two differ when a render was retried more than once: the id of one of its
// retries then stands for what that one has answered. What other retries of the
// request have done may be noted under either.
func (r *clientRequests) all(legID string) []*clientRequest {
	found := []*clientRequest{r.of(legID)}
	if base := r.byID[withoutRetry(legID)]; base != nil && base != found[0] {
		found = append(found, base)
	}
	return found
}

// renew forgets what was known of the request and starts anew: ids come back
// when clients choose them.
func (r *clientRequests) renew(legID string) *clientRequest {
	fresh := &clientRequest{encoding: map[string][]*encoding{}, descriptors: map[string][]json.RawMessage{}}
	for _, id := range []string{legID, withoutRetry(legID)} {
		r.byID[id] = fresh
		if oldest, full := r.ids.add(id); full {
			delete(r.byID, oldest)
		}
	}
	return fresh
}

// withoutRetry takes the "-r<n>" of a retry off a leg's id.
func withoutRetry(legID string) string {
	if i := strings.LastIndex(legID, "-r"); i > 0 && ofRequest(legID, legID[:i]) {
		return legID[:i]
	}
	return legID
}

// tokensKey stands for token ids.
func tokensKey(ids []int) [sha256.Size]byte { return newPrompt(ids, nil, nil).key }

// sumOf stands for a text that is too large to be kept.
func sumOf(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }
