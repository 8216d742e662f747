package media

import (
	"bytes"
	"container/list"
	"net/http"
	"strings"
	"time"
)

// cache keeps media by the keys of their URLs (see keyOf), those that were asked for
// last. It is not safe for use by many goroutines.
type cache struct {
	limit, size int64
	ttl         time.Duration
	byURL       map[string]*list.Element
	order       *list.List // of *kept, the last one asked for in front
}

// kept is an image in a cache.
type kept struct {
	url     string
	picture *picture
	expires time.Time
}

// keptOverhead is about what an image takes besides its bytes and its URL's.
const keptOverhead = 256

func (k *kept) size() int64 { return int64(len(k.url) + cap(k.picture.uri) + keptOverhead) }

func newCache(limit int64, ttl time.Duration) *cache {
	return &cache{limit: limit, ttl: ttl, byURL: map[string]*list.Element{}, order: list.New()}
}

// get returns an image and Hit, or that there is none: Miss or Expired.
func (c *cache) get(url string) (*picture, Found) {
	e := c.byURL[url]
	if e == nil {
		return nil, Miss
	}
	k := e.Value.(*kept)
	if !time.Now().Before(k.expires) {
		c.drop(e)
		return nil, Expired
	}
	c.order.MoveToFront(e)
	return k.picture, Hit
}

// put keeps an image, in the place of those that were not asked for longest.
func (c *cache) put(url string, pic *picture) {
	if e := c.byURL[url]; e != nil {
		c.drop(e)
	}
	k := &kept{url: url, picture: pic, expires: time.Now().Add(c.ttl)}
	if k.size() > c.limit {
		return
	}
	for c.size+k.size() > c.limit {
		c.drop(c.order.Back())
	}
	c.byURL[url] = c.order.PushFront(k)
	c.size += k.size()
}

func (c *cache) drop(e *list.Element) {
	k := c.order.Remove(e).(*kept)
	delete(c.byURL, k.url)
	c.size -= k.size()
}

// compact returns what is fit to be kept: an image whose size was not known
// ahead may stand in a slice twice as large.
func compact(uri []byte) []byte {
	if cap(uri)-len(uri) > len(uri)/8 {
		return bytes.Clone(uri)
	}
	return uri
}

// forbidsKeeping reports whether an answer says that it is not for others, or
// not for later. Other directives are not heeded: how long an image is kept is
// the operator's choice.
func forbidsKeeping(h http.Header) bool {
	for _, line := range h.Values("Cache-Control") {
		for directive := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(directive, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "no-store", "no-cache", "private":
				return true
			}
		}
	}
	return false
}
