package cluster

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// originPrefix is where media are: /_origin/<name>, see [MediaBytes]. The query
// says how it behaves: its parameters are the fields of [ImageOptions].
const originPrefix = "/_origin/"

// ImageOptions are how the origin answers for an image. The zero value is the
// image with the fewest bytes, as any good server would send it. Anything slow is
// a matter for faults and gates on the leg [Origin].
type ImageOptions struct {
	Bytes      int    // bytes=: the image's size
	Redirects  int    // redirect=: how many redirects come first
	RedirectTo string // redirect_to=: a redirect to this URL, and nothing else
	Status     int    // status=: this status, and no image
	Type       string // type=: the Content-Type instead of the true one; "none" for none
	NoLength   bool   // no_length=1: chunked, without Content-Length
	Length     int    // length=: the Content-Length instead of the true one
	HTML       bool   // html=1: a page, called an image
	Truncated  bool   // truncated=1: the connection breaks in the middle
	Gzip       bool   // gzip=1: compressed, and said so
}

// ImageURL returns the URL of a medium at the origin of a started cluster. Media
// of different names differ.
func (c *Cluster) ImageURL(name string, options ImageOptions) string {
	query := url.Values{}
	for key, n := range map[string]int{
		"bytes": options.Bytes, "redirect": options.Redirects, "status": options.Status, "length": options.Length,
	} {
		if n != 0 {
			query.Set(key, strconv.Itoa(n))
		}
	}
	for key, text := range map[string]string{"redirect_to": options.RedirectTo, "type": options.Type} {
		if text != "" {
			query.Set(key, text)
		}
	}
	for key, on := range map[string]bool{
		"no_length": options.NoLength, "html": options.HTML, "truncated": options.Truncated, "gzip": options.Gzip,
	} {
		if on {
			query.Set(key, "1")
		}
	}
	address := c.URL() + originPrefix + url.PathEscape(name)
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return address
}

// readImageOptions reads them from a query. What is not known is refused, so that
// no test relies on what does not happen.
func readImageOptions(query url.Values) (o ImageOptions, err error) {
	texts := map[string]*string{"redirect_to": &o.RedirectTo, "type": &o.Type}
	numbers := map[string]*int{"bytes": &o.Bytes, "redirect": &o.Redirects, "status": &o.Status, "length": &o.Length}
	truths := map[string]*bool{"no_length": &o.NoLength, "html": &o.HTML, "truncated": &o.Truncated, "gzip": &o.Gzip}
	for key := range query {
		value := query.Get(key)
		switch {
		case texts[key] != nil:
			*texts[key] = value
		case numbers[key] != nil:
			*numbers[key], err = strconv.Atoi(value)
		case truths[key] != nil:
			*truths[key], err = strconv.ParseBool(value)
		default:
			err = fmt.Errorf("unknown parameter %q", key)
		}
		if err != nil {
			return o, err
		}
	}
	if o.Bytes < 0 || o.Bytes > 1<<30 || o.Redirects < 0 || o.Length < 0 || o.Status != 0 && (o.Status < 200 || o.Status > 599) {
		return o, fmt.Errorf("a number is out of range")
	}
	return o, nil
}

// origin is the server of media.
func (l *leg) origin() error {
	name := strings.TrimPrefix(l.request.URL.Path, originPrefix)
	o, err := readImageOptions(l.request.URL.Query())
	if err != nil {
		return badValue("", "%v", err)
	}
	switch {
	case mediaType(name) == "":
		return refusalOf(http.StatusNotFound)
	case o.RedirectTo != "":
		return l.redirect(o.RedirectTo)
	case o.Redirects > 0:
		o.Redirects--
		return l.redirect(l.cluster.pathOf(name, o))
	case o.Status != 0:
		return l.answer(o.Status, encode(refusalOf(o.Status).body()))
	}
	return l.sendImage(name, o)
}

// pathOf is ImageURL without scheme and host, which are not the cluster's to know
// if the server is not its own.
func (c *Cluster) pathOf(name string, o ImageOptions) string {
	return strings.TrimPrefix(c.ImageURL(name, o), c.URL())
}

func (l *leg) redirect(to string) error {
	l.writer.Header().Set("Location", to)
	return l.answer(http.StatusFound, nil)
}

// sendImage answers with the image, or with what the options make of it.
func (l *leg) sendImage(name string, o ImageOptions) error {
	data := MediaBytes(name, o.Bytes)
	if o.HTML {
		data = []byte("<!DOCTYPE html><html><body>This is not an image.</body></html>")
	}
	header := l.writer.Header()
	header.Set("Content-Type", cmp.Or(o.Type, mediaType(name)))
	if o.Type == "none" {
		header["Content-Type"] = nil // and no guess of net/http either
	}
	if o.Gzip {
		data = compressed(data)
		header.Set("Content-Encoding", "gzip")
	}
	length := cmp.Or(o.Length, len(data))
	if !o.NoLength {
		header.Set("Content-Length", strconv.Itoa(length))
		data = data[:min(length, len(data))]
	}
	if err := l.begin(http.StatusOK); err != nil {
		return err
	}
	if o.Truncated || l.fault.BreakAfter != nil {
		data = data[:len(data)/2]
	}
	if _, err := l.writer.Write(data); err != nil {
		return err
	}
	if err := l.flush(); err != nil {
		return err
	}
	if o.Truncated || l.fault.BreakAfter != nil || !o.NoLength && len(data) < length {
		return errBreak
	}
	return nil
}

func compressed(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}
