package wire

import (
	"bytes"
	"strconv"
)

// The members of OpenAI's usage object that say how much of a prompt was cached.
const (
	promptDetails = "prompt_tokens_details"
	cachedTokens  = "cached_tokens"
)

// CachedTokens returns how many tokens of its prompt a worker says that it had
// cached: usage.prompt_tokens_details.cached_tokens of an answer. It reports false
// if the answer does not say, as vLLM's do not without
// --enable-prompt-tokens-details. Answer must be valid JSON.
func CachedTokens(answer []byte) (int, bool) {
	said := Lookup(Lookup(Lookup(answer, "usage"), promptDetails), cachedTokens)
	n, err := strconv.ParseInt(string(said), 10, 32)
	return int(n), err == nil && n >= 0
}

// UsageEdit changes what an answer that goes by says of cached tokens: in each
// object that is called usage, and counts the tokens of a prompt, it sets
// prompt_tokens_details.cached_tokens. All else stays byte for byte. Of an answer
// it reads no more than these objects, and keeps back no more than one of them
// while it comes. It belongs to one goroutine.
type UsageEdit struct {
	cached Text
	held   []byte // what may be the beginning of such an object
	out    []byte
	edits  int
}

// NewUsageEdit makes one that sets a number of cached tokens.
func NewUsageEdit(cached int) *UsageEdit {
	return &UsageEdit{cached: Raw(strconv.Itoa(cached))}
}

const (
	usageMember = `"usage"`
	// maxUsageObject is how long such an object may be, with its name. Those of
	// workers have 100 to 300 bytes. A longer one stays as it is.
	maxUsageObject = 2 << 10
)

// Edits returns how many objects were changed.
func (u *UsageEdit) Edits() int { return u.edits }

// Take takes the next bytes of the answer, and returns what can go on: good until
// the next call, and text itself if there is nothing in it.
func (u *UsageEdit) Take(text []byte) []byte {
	window := text
	if len(u.held) > 0 {
		u.held = append(u.held, text...)
		window = u.held
	}
	u.out = u.out[:0]
	done, keep := 0, len(window) // what is in out, and what is held back from
	for at := 0; ; {
		i := bytes.Index(window[at:], []byte(usageMember))
		if i < 0 {
			keep -= nameAtEnd(window[at:])
			break
		}
		i += at
		end, whole := usageObject(window[i:min(len(window), i+maxUsageObject+1)])
		if !whole && end > 0 {
			keep = i
			break
		}
		at = i + len(usageMember)
		if edited := u.edited(window[i : i+end]); edited != nil {
			u.out = append(u.out, window[done:i]...)
			for _, piece := range edited {
				u.out = append(u.out, piece...)
			}
			at, done = i+end, i+end
		}
	}
	if done == 0 && len(u.held) == 0 {
		u.held = append(u.held, window[keep:]...)
		return text[:keep]
	}
	u.out = append(u.out, window[done:keep]...)
	u.held = append(u.held[:0], window[keep:]...)
	return u.out
}

// End returns what was held back, when the answer has ended.
func (u *UsageEdit) End() []byte { return u.held }

// nameAtEnd is how much of the name stands at the end of a text.
func nameAtEnd(text []byte) int {
	for n := min(len(usageMember)-1, len(text)); n > 0; n-- {
		if string(text[len(text)-n:]) == usageMember[:n] {
			return n
		}
	}
	return 0
}

// usageObject returns where the object ends that text, which begins with the name,
// has behind it. If it is not whole, that is the end of text. It is 0 if there is no
// object, or one that is too long: then text, which is cut, ends within it.
func usageObject(text []byte) (end int, whole bool) {
	at := skipSpace(text, len(usageMember))
	if at < len(text) && text[at] != ':' {
		return 0, false
	}
	at = skipSpace(text, min(at+1, len(text)))
	if at < len(text) && text[at] != '{' {
		return 0, false
	}
	end, whole = objectEnd(text, at)
	if end > maxUsageObject {
		return 0, false
	}
	return end, whole
}

// objectEnd returns where the object ends that begins at a place, or the end of
// text if it goes on behind that.
func objectEnd(text []byte, at int) (end int, whole bool) {
	depth, inString := 0, false
	for ; at < len(text); at++ {
		switch c := text[at]; {
		case inString && c == '\\':
			at++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return at + 1, true
			}
		}
	}
	return len(text), false
}

// edited returns what stands in the place of a whole object, name included, or nil
// if it does not count the tokens of a prompt.
func (u *UsageEdit) edited(member []byte) Text {
	brace := bytes.IndexByte(member, '{')
	if brace < 0 {
		return nil
	}
	usage, err := ParseBody(member[brace:])
	if err != nil || usage.Get("prompt_tokens") == nil {
		return nil
	}
	given := usage.Get(promptDetails)
	if !IsNull(given) && !IsObject(given) {
		return nil
	}
	details := editOf(given)
	details.Set(cachedTokens, u.cached)
	e := usage.Edit()
	e.Set(promptDetails, details.Text())
	u.edits++
	return append(Text{member[:brace]}, e.Text()...)
}
