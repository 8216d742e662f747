package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// ownHeaders are the headers that an origin adds to each leg. Their values are
// credentials: they are in no error, no log and no String.
type ownHeaders []ownHeader

type ownHeader struct {
	name  string
	value func() []string
}

// addTo replaces what a client has sent under the same names.
func (hs ownHeaders) addTo(to http.Header) {
	for _, h := range hs {
		to[h.name] = h.value()
	}
}

// newHeaders resolves the headers of an origin's settings.
func newHeaders(s *OriginSettings) (ownHeaders, error) {
	var headers ownHeaders
	for _, spelt := range slices.Sorted(maps.Keys(s.Headers)) {
		name := http.CanonicalHeaderKey(spelt)
		fail := func(err error) (ownHeaders, error) { return nil, &SettingError{Key: "headers." + spelt, Err: err} }
		switch {
		case !wire.IsToken(name):
			return fail(errors.New("want the name of an HTTP header"))
		case wire.Reserved(name, s.ProfileHeader):
			return fail(errors.New("is the coordinator's own to set"))
		case slices.ContainsFunc(headers, func(h ownHeader) bool { return h.name == name }):
			return fail(errors.New("is there twice, in capitals and small letters"))
		}
		value, err := s.headerValue(s.Headers[spelt])
		if err != nil {
			return fail(err)
		}
		headers = append(headers, ownHeader{name, value})
	}
	return headers, nil
}

// headerValue returns where a header's value comes from: env:NAME, file:PATH, or
// itself.
func (s *OriginSettings) headerValue(spec string) (func() []string, error) {
	text := spec
	if name, ok := strings.CutPrefix(spec, "env:"); ok {
		lookup := s.LookupEnv
		if lookup == nil {
			lookup = os.LookupEnv
		}
		if text, ok = lookup(name); !ok {
			return nil, fmt.Errorf("there is no environment variable %q", name)
		}
	} else if path, ok := strings.CutPrefix(spec, "file:"); ok {
		v, err := files.NewValue(s.Files, func(contents [][]byte) ([]string, error) {
			return checkedValue(strings.TrimRight(string(contents[0]), "\r\n"))
		}, path)
		if err != nil {
			return nil, err
		}
		return v.Get, nil
	}
	values, err := checkedValue(text)
	return func() []string { return values }, err
}

// checkedValue makes a header's values of one that can be sent.
func checkedValue(text string) ([]string, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, errors.New("the value is empty")
	case strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return nil, errors.New("the value has a line break or another control character in it")
	}
	return []string{text}, nil
}
