package media

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestDataURIs(t *testing.T) {
	const (
		fine    = ""
		invalid = "invalid_media"
		large   = "limit_exceeded"
	)
	tests := []struct{ text, want string }{ // text is what is between the quotes; 10 bytes are allowed
		{`data:image/png;base64,iVBORw0KGgo=`, fine},
		{`data:image/jpeg;base64,AA==`, fine},
		{`data:image/gif;base64,AAA=`, fine},
		{`data:image/webp;base64,AAAA`, fine},
		{`data:image/png;base64,+/+/`, fine},
		{`DATA:Image/PNG;Base64,AAAA`, fine},
		{`data: image/png ; base64 ,AAAA`, fine},
		{`data:\timage/png\r\n;\tbase64,AAAA`, fine},
		{`data:image/png;charset=utf-8;name=\"a b\";base64,AAAA`, fine},
		{`data:image/png;;base64,AAAA`, fine},
		{`data:image/png;base64;base64,AAAA`, fine},
		{`data:image\/png;base64,\/\/\/\/`, fine},
		{`\u0064\u0061ta\u003aimage\u002Fpng\u003bbase64\u002cAAA\u003D`, fine},
		{`data:image/png;base64,\u002b\u002B\u002f\u002FAA\u003d\u003d`, fine},
		{`data:image/png;base64,AB==`, fine}, // bits left over; every decoder drops them
		{`data:image/png;base64,AAAAAAAAAAAAAA==`, fine},
		{`data:image/png;base64,` + `\u0041\u0041\u0041\u0041`, fine},

		{`data:image/png;base64,AAAAAAAAAAAAAAA=`, large},
		{`data:image/png;base64,AAAAAAAAAAAAAAAA`, large},
		{`data:image/png;base64,` + strings.Repeat(`\/`, 16), large},
		{`data:image/png;base64,` + strings.Repeat("A", 1001), large},

		{``, invalid},
		{`data`, invalid},
		{`data:`, invalid},
		{`data:,`, invalid},
		{`data:,AAAA`, invalid},
		{`data:;base64,AAAA`, invalid},
		{`data:base64,AAAA`, invalid},
		{`data:image/png,AAAA`, invalid},
		{`data:image/png;base64`, invalid},
		{`data:image/png;base64;AAAA`, invalid},
		{`data:image/png;base64,`, invalid},
		{`data:image/png;base64;charset=x,AAAA`, invalid},
		{`data:image/png;charset=base64,AAAA`, invalid},
		{`data:image/png;base65,AAAA`, invalid},
		{`data:image/png;base64 x,AAAA`, invalid},
		{`data:image/png,base64,AAAA`, invalid},
		{`data:image/svg+xml;base64,AAAA`, invalid},
		{`data:image/jpg;base64,AAAA`, invalid},
		{`data:image/*;base64,AAAA`, invalid},
		{`data:image/pngx;base64,AAAA`, invalid},
		{`data:image/p ng;base64,AAAA`, invalid},
		{`data:image /png;base64,AAAA`, invalid},
		{`data:text/html;base64,AAAA`, invalid},
		{`data:application/octet-stream;base64,AAAA`, invalid},
		{`data:image/png\u0000;base64,AAAA`, invalid},
		{`data:image/png;n=\u007f;base64,AAAA`, invalid},
		{`data:image/png;n=\u00e4;base64,AAAA`, invalid},
		{`data:image/png;n=ä;base64,AAAA`, invalid},
		{`data:image/png;n=\b;base64,AAAA`, invalid},
		{`data:image/png;n=` + strings.Repeat("x", 300) + `;base64,AAAA`, invalid},
		{` data:image/png;base64,AAAA`, invalid},
		{`data :image/png;base64,AAAA`, invalid},
		{`da\nta:image/png;base64,AAAA`, invalid},
		{`http://img.test/`, invalid},
		{`data:image/png;base64,A`, invalid},
		{`data:image/png;base64,AA`, invalid},
		{`data:image/png;base64,AAA`, invalid},
		{`data:image/png;base64,AA=`, invalid},
		{`data:image/png;base64,A===`, invalid},
		{`data:image/png;base64,====`, invalid},
		{`data:image/png;base64,=AAA`, invalid},
		{`data:image/png;base64,AAA==`, invalid},
		{`data:image/png;base64,AA===`, invalid},
		{`data:image/png;base64,AAAA=`, invalid},
		{`data:image/png;base64,AAAA====`, invalid},
		{`data:image/png;base64,AA======`, invalid},
		{`data:image/png;base64,AAAA==`, invalid},
		{`data:image/png;base64,AA=A`, invalid},
		{`data:image/png;base64,AA==AAAA`, invalid},
		{`data:image/png;base64,AAA=\n`, invalid},
		{`data:image/png;base64, AAAA`, invalid},
		{`data:image/png;base64,AA AA`, invalid},
		{`data:image/png;base64,AA\nAA`, invalid},
		{`data:image/png;base64,AAAA\r\n`, invalid},
		{`data:image/png;base64,AA%3D%3D`, invalid},
		{`data:image/png;base64,-_-_`, invalid},
		{`data:image/png;base64,AAAA,AAAA`, invalid},
		{`data:image/png;base64,AAAA#x`, invalid},
		{`data:image/png;base64,AAAA?x`, invalid},
		{`data:image/png;base64,AAAÄ`, invalid},
		{`data:image/png;base64,AAA\u0141`, invalid},
		{`data:image/png;base64,AAA\ud841`, invalid},
		{`data:image/png;base64,AAA\"`, invalid},
		{`data:image/png;base64,AAA\\`, invalid},
		{`data:image/png;base64,` + strings.Repeat("AAAA", 2) + "*", invalid},
	}
	for _, tt := range tests {
		value := []byte(`"` + tt.text + `"`)
		if !json.Valid(value) {
			t.Fatalf("%s is no JSON", value)
		}
		before := bytes.Clone(value)
		err := checkImage(value, 10)
		switch tt.want {
		case fine:
			if err != nil {
				t.Errorf("%.80s: %v", tt.text, err)
			}
		case large:
			wantFault(t, err, wire.LimitExceeded, large)
		default:
			if err == nil {
				t.Errorf("%.80s is fine", tt.text)
				continue
			}
			wantFault(t, err, wire.BadRequest, tt.want)
		}
		if !bytes.Equal(before, value) {
			t.Errorf("%.80s was changed", tt.text)
		}
	}
}

// TestValuesThatAreNoString: the caller has looked, but nothing breaks.
func TestValuesThatAreNoString(t *testing.T) {
	for _, value := range []string{``, `"`, `null`, `{}`, `data:image/png;base64,AAAA`, `"data:image/png;base64,AAAA`, `"data:image/png;base64,AAAA\"`,
		`"data:image/png;base64,AAA\u003"`, `"data:image/png;base64,AAA\u"`, `"data:image/png;base64,AAA\x"`, `"\"`, `"data:image/png;base64,AA"A"`} {
		wantFault(t, checkImage([]byte(value), math.MaxInt64), wire.BadRequest, "invalid_media")
	}
}

func TestSchemeOfADataURI(t *testing.T) {
	for value, want := range map[string]bool{
		`"data:"`: true, `"DaTa:x"`: true, `"\u0064ata:x"`: true, `"data\u003Ax"`: true,
		`"data"`: false, `"dat"`: false, `""`: false, `" data:"`: false, `"http://data:"`: false, `"\u0164ata:"`: false, `null`: false, `"`: false, ``: false,
	} {
		if got := hasDataScheme([]byte(value)); got != want {
			t.Errorf("%s: %v", value, got)
		}
	}
}

// TestDataURISizes exactly at the limit and one over, for every padding.
func TestDataURISizes(t *testing.T) {
	for n := 1; n < 100; n++ {
		value := []byte(`"data:image/png;base64,` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `"`)
		if err := checkImage(value, int64(n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		wantFault(t, checkImage(value, int64(n-1)), wire.LimitExceeded, "limit_exceeded")
	}
}

// large is an image of n bytes, inlined; with every "/" written as "\/" if
// escaped.
func large(n int, escaped bool) []byte {
	data := base64.StdEncoding.EncodeToString(image(n))
	if escaped {
		data = strings.ReplaceAll(data, "/", `\/`)
	}
	return []byte(`"data:image/png;base64,` + data + `"`)
}

// TestDataURIAllocations: nothing that grows with an image.
func TestDataURIAllocations(t *testing.T) {
	const size = 2 << 20
	for _, escaped := range []bool{false, true} {
		value := large(size, escaped)
		if n := testing.AllocsPerRun(1, func() {
			if err := checkImage(value, size); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, limit := range []int64{1000, size - 1} {
			if checkImage(value, limit) == nil {
				t.Error("it is not too large")
			}
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<10 {
			t.Errorf("%d bytes were allocated for two refusals", n)
		}
	}
}

func BenchmarkCheckDataURI(b *testing.B) {
	for name, value := range map[string][]byte{"plain": large(20<<20, false), "escaped": large(20<<20, true)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if err := checkImage(value, 20<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// dataURI is the oracle: what CheckDataURI accepts as a pattern, and what the
// standard library makes of it.
var dataURI = regexp.MustCompile(`^(?i:data):([^,;]*)(?:;[^,]*)?;([^,;]*),([A-Za-z0-9+/]*={0,2})$`)

func oracle(value []byte, limit int64) (code string) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return "invalid_media"
	}
	m := dataURI.FindStringSubmatch(text)
	head, _, _ := strings.Cut(text, ",")
	if m == nil || len(head) > len("data:")+maxHead || strings.ContainsFunc(head, func(r rune) bool {
		return r >= 0x7f || r < ' ' && !strings.ContainsRune("\t\r\n", r)
	}) {
		return "invalid_media"
	}
	switch strings.ToLower(strings.TrimSpace(m[1])) {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
	default:
		return "invalid_media"
	}
	data, err := base64.StdEncoding.DecodeString(m[3])
	if !strings.EqualFold(strings.TrimSpace(m[2]), "base64") || err != nil || len(data) == 0 {
		return "invalid_media"
	}
	if int64(len(data)) > limit {
		return "limit_exceeded"
	}
	return ""
}

func FuzzDataURI(f *testing.F) {
	for _, text := range []string{
		pngURI, `"data:image/webp;base64,AAAAAAAAAAAA\/\u002bA="`, `"data: image/GIF ;x=y; base64 ,AA=="`, `"http://img.test"`, `"data:image/png;base64,AA==AA"`,
		`"data:image/jpeg;base64,AAA\u003d"`, `"data:image/png;base64;x,A\n=="`, `"\u0044ATA:image/png,AAAA"`, `null`,
	} {
		f.Add([]byte(text), int64(12))
	}
	f.Fuzz(func(t *testing.T, value []byte, limit int64) {
		if limit < 0 || json.Valid(value) && (len(value) == 0 || value[0] != '"' || value[len(value)-1] != '"') {
			return // white space around, or no string
		}
		before := bytes.Clone(value)
		err := checkImage(value, limit)
		if !bytes.Equal(value, before) {
			t.Error("changed")
		}
		code := ""
		if err != nil {
			code = wire.FaultOf(err).ErrorCode()
		}
		if !json.Valid(value) {
			return // nothing broke
		}
		// What is malformed behind more than is allowed is one or the other.
		if want := oracle(value, limit); code != want && !(code == "limit_exceeded" && want == "invalid_media") {
			t.Errorf("%q of %d: %q, want %q", value, limit, code, want)
		}
		if err == nil && !hasDataScheme(value) {
			t.Errorf("%q is fine, but no data URI", value)
		}
	})
}

// hasDataScheme reports whether CheckDataURI takes a value for a data URI at all.
func hasDataScheme(value []byte) bool {
	c, ok := newChars(value)
	return ok && c.scheme("data:")
}
