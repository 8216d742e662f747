package gateway

import (
	"errors"
	"maps"
	"net/http"
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
		value, err := files.Secret(s.Headers[spelt], s.LookupEnv, s.Files, checkedValue)
		if err != nil {
			return fail(err)
		}
		headers = append(headers, ownHeader{name, value})
	}
	return headers, nil
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
