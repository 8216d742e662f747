package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"
)

// What is shown of a body.
const (
	shownString   = 96 // bytes of a string; of a longer one shownStart
	shownStart    = 64
	shownElements = 8 // of an array
	masked        = "(masked)"
)

// secret is the name of a member, header or parameter that may hold a credential.
var secret = regexp.MustCompile(`(?i)authorization|api[-_]?key|passw(or)?d|secret|credential|cookie|signature|bearer|[-_]token$|^token$`)

// cut returns a JSON text whose long strings and arrays are cut, and whose
// credentials are masked. Strings that are keys of known are replaced by its
// values. What is no JSON object is a string that says how long it is.
func cut(text []byte, known map[string]string) json.RawMessage {
	c := cutter{dec: json.NewDecoder(bytes.NewReader(text)), known: known}
	c.dec.UseNumber()
	if err := c.next(""); err != nil || len(text) == 0 {
		return encoded(fmt.Sprintf("(%d bytes, not JSON)", len(text)))
	}
	return c.out.Bytes()
}

type cutter struct {
	dec   *json.Decoder
	out   bytes.Buffer
	known map[string]string
}

// next copies the next value, which is that of a member of this name.
func (c *cutter) next(name string) error {
	token, err := c.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return c.object()
	case json.Delim('['):
		return c.array(name)
	}
	if text, ok := token.(string); ok {
		token = c.text(name, text)
	}
	c.out.Write(encoded(token))
	return nil
}

func (c *cutter) object() error {
	c.out.WriteByte('{')
	for first := true; c.dec.More(); first = false {
		token, err := c.dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // JSON has no others
		if !first {
			c.out.WriteByte(',')
		}
		c.out.Write(encoded(short(name)))
		c.out.WriteByte(':')
		if err := c.next(name); err != nil {
			return err
		}
	}
	c.out.WriteByte('}')
	_, err := c.dec.Token()
	return err
}

func (c *cutter) array(name string) error {
	c.out.WriteByte('[')
	left := 0
	for n := 0; c.dec.More(); n++ {
		if n >= shownElements {
			left++
			var skipped json.RawMessage
			if err := c.dec.Decode(&skipped); err != nil {
				return err
			}
			continue
		}
		if n > 0 {
			c.out.WriteByte(',')
		}
		if err := c.next(name); err != nil {
			return err
		}
	}
	if left > 0 {
		fmt.Fprintf(&c.out, `,"… %d more"`, left)
	}
	c.out.WriteByte(']')
	_, err := c.dec.Token()
	return err
}

// text is what is shown of a string.
func (c *cutter) text(name, text string) string {
	if instead, ok := c.known[text]; ok {
		return instead
	}
	if secret.MatchString(name) {
		return masked
	}
	return short(maskURL(text))
}

// short cuts a long text.
func short(text string) string {
	if len(text) <= shownString {
		return text
	}
	end := shownStart
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:end], len(text))
}

// maskURL takes out of a URL what may be a credential: user, password and query.
func maskURL(text string) string {
	head, rest, ok := strings.Cut(text, "://")
	if !ok || !strings.EqualFold(head, "http") && !strings.EqualFold(head, "https") || strings.ContainsAny(text, " \n") {
		return text
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, asked := strings.Cut(rest, "?")
	host, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = masked + host[at:]
	}
	text = head + "://" + host
	if len(rest) > len(host) || path != "" {
		text += "/" + path
	}
	if asked && query != "" {
		text += "?" + masked
	}
	return text
}

// maskQuery masks the values in a query that may be credentials.
func maskQuery(query string) string {
	params := strings.Split(query, "&")
	for i, param := range params {
		name, _, _ := strings.Cut(param, "=")
		if plain, err := url.QueryUnescape(name); err != nil || secret.MatchString(plain) || strings.EqualFold(plain, "key") {
			params[i] = name + "=" + masked
		}
	}
	return strings.Join(params, "&")
}

// encoded returns a scalar as JSON, without the escapes that only HTML needs.
func encoded(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings, numbers, true, false and null: it cannot fail
	return bytes.TrimRight(b.Bytes(), "\n")
}
