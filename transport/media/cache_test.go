package media

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// keeps are the URLs that a cache has, the last one asked for first.
func (c *cache) keeps() (urls []string) {
	for e := c.order.Front(); e != nil; e = e.Next() {
		urls = append(urls, e.Value.(*kept).url)
	}
	return urls
}

func TestCacheKeepsWhatWasAskedForLast(t *testing.T) {
	const each = 1000
	sized := func(n int) *picture { return &picture{uri: make([]byte, n)} }
	image := sized(each - keptOverhead - 1) // with a URL of one byte
	c := newCache(3*each, time.Hour)
	want := func(urls string) {
		t.Helper()
		if got := strings.Join(c.keeps(), ""); got != urls || c.size != int64(each*len(urls)) || len(c.byURL) != len(urls) {
			t.Errorf("keeps %s in %d bytes, want %s", got, c.size, urls)
		}
	}
	for _, url := range []string{"a", "b", "c"} {
		c.put(url, image)
	}
	want("cba")
	if got, found := c.get("a"); found != Hit || got != image {
		t.Errorf("a: %q", found)
	}
	want("acb")
	if _, found := c.get("x"); found != Miss {
		t.Errorf("x: %q", found)
	}
	c.put("d", image)
	want("dac")
	c.put("c", image) // anew
	want("cda")
	c.put("huge", sized(3*each))
	want("cda")
	c.put("d", sized(3*each)) // what was kept is not what is there now
	want("ca")
	c.put("e", sized(3*each-keptOverhead-1)) // as large as all
	if got := c.keeps(); !slices.Equal(got, []string{"e"}) || c.size != 3*each {
		t.Errorf("keeps %v in %d bytes", got, c.size)
	}
}

func TestCacheForgetsWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(1<<20, time.Minute)
		c.put("a", &picture{uri: []byte("x")})
		time.Sleep(time.Minute - 1)
		if _, found := c.get("a"); found != Hit {
			t.Errorf("%q before its time", found)
		}
		time.Sleep(time.Nanosecond) // that it was asked for does not make it last
		if _, found := c.get("a"); found != Expired || c.size != 0 {
			t.Errorf("%q after its time, %d bytes", found, c.size)
		}
		if _, found := c.get("a"); found != Miss {
			t.Errorf("%q then", found)
		}
	})
}

func TestKeptImagesWasteNoRoom(t *testing.T) {
	loose, tight := append(make([]byte, 0, 2000), make([]byte, 1000)...), append(make([]byte, 0, 1050), make([]byte, 1000)...)
	if c := compact(loose); cap(c) > 1024 || len(c) != 1000 {
		t.Errorf("%d bytes in %d", len(c), cap(c))
	}
	if c := compact(tight); &c[0] != &tight[0] {
		t.Error("copied for little")
	}
}

// TestWhatIsKept: by the client's URL alone, unless anybody on the way to the
// image says otherwise.
func TestWhatIsKept(t *testing.T) {
	type page struct{ header, location, body string }
	for _, tt := range []struct {
		name  string
		pages map[string]page
		want  []string
	}{
		{"plain", map[string]page{"/a": {"", "", png}}, []string{"/a"}},
		{"query", map[string]page{"/a?x=" + secret: {"", "", png}}, []string{"/a?x=" + secret}},
		{"public", map[string]page{"/a": {"public, max-age=1", "", png}}, []string{"/a"}},
		{"a word that is none", map[string]page{"/a": {"x-no-store, no-storex, \"no store\"", "", png}}, []string{"/a"}},
		{"no-store", map[string]page{"/a": {"no-store", "", png}}, nil},
		{"private", map[string]page{"/a": {"private, max-age=60", "", png}}, nil},
		{"no-cache", map[string]page{"/a": {"no-cache", "", png}}, nil},
		{"among others", map[string]page{"/a": {"max-age=60 ,No-Store", "", png}}, nil},
		{"in another line", map[string]page{"/a": {"max-age=60\r\ncache-control: NO-STORE", "", png}}, nil},
		{"with fields", map[string]page{"/a": {`private="x, y"`, "", png}}, nil},
		{"redirect", map[string]page{"/a": {"", "/b", ""}, "/b": {"", "", png}}, []string{"/a"}},
		{"redirect that is private", map[string]page{"/a": {"private", "/b", ""}, "/b": {"", "", png}}, nil},
		{"redirect to what is", map[string]page{"/a": {"", "/b", ""}, "/b": {"no-store", "", png}}, nil},
		{"no image", map[string]page{"/a": {"", "", "<html>"}}, nil},
		{"nothing", map[string]page{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := hosting(raw(t, func(c *conn) {
				lines := c.hear()
				p, ok := tt.pages[strings.Fields(lines[0])[1]]
				switch {
				case !ok:
					c.say("HTTP/1.1 404 None\r\n\r\n")
				case p.location != "":
					c.say("HTTP/1.1 302 Found\r\nCache-Control: " + p.header + "\r\nLocation: " + p.location + "\r\n\r\n")
				default:
					c.say(head200 + "Cache-Control: " + p.header + "\r\n\r\n" + p.body)
				}
			}))
			fs := NewFlights(w.fetcher(t), FlightSettings{CacheSize: 1 << 20, CacheTTL: time.Hour})
			defer fs.Close()
			asked := []string{"/a"}
			if len(tt.want) > 0 {
				asked = tt.want
			}
			s := fs.Seat(wire.Image, "http://img.test"+asked[0])
			s.Join(true)
			s.Run(t.Context())
			var got []string
			for _, url := range fs.cache.keeps() {
				got = append(got, strings.TrimPrefix(url, "http://img.test"))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("keeps %q, want %q", got, tt.want)
			}
		})
	}
}

// TestKeptImagesAreNotDownloaded until they are too old.
func TestKeptImagesAreNotDownloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		w := hosting(serve(t, func(rw http.ResponseWriter, r *http.Request) {
			asked[r.URL.String()]++
			if r.URL.Path == "/to" {
				http.Redirect(rw, r, "/?q=1", http.StatusFound)
				return
			}
			fmt.Fprint(rw, png, r.URL)
		}))
		fs := NewFlights(w.fetcher(t), FlightSettings{CacheSize: 1 << 20, CacheTTL: time.Minute})
		defer fs.Close()
		get := func(path string) (string, Found) {
			s := fs.Seat(wire.Image, "http://img.test"+path)
			found := s.Join(true)
			uri, err := s.Run(t.Context()) // at once if it is kept
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			return string(uri), found
		}
		first := map[string]string{}
		for round, want := range []Found{Miss, Hit, Hit, Expired} {
			for _, path := range []string{"/to", "/?q=1", "/?q=2", "/", "/#a"} {
				uri, found := get(path)
				if found != want || round > 0 && uri != first[path] {
					t.Errorf("round %d: %s: %q", round, path, found)
				}
				first[path] = uri
			}
			if round == 2 {
				time.Sleep(time.Minute)
			}
		}
		if want := map[string]int{"/to": 2, "/?q=1": 4, "/?q=2": 2, "/": 4}; !maps.Equal(asked, want) {
			t.Errorf("asked for %v, want %v", asked, want)
		}
		if first["/?q=1"] == first["/?q=2"] || first["/"] == first["/?q=1"] {
			t.Error("images of different URLs are the same")
		}
	})
}

// TestNothingIsKeptByDefault.
func TestNothingIsKeptByDefault(t *testing.T) {
	asked := 0
	w := hosting(serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		asked++
		io.WriteString(rw, png)
	}))
	fs := NewFlights(w.fetcher(t), FlightSettings{CacheTTL: time.Hour})
	defer fs.Close()
	for range 3 {
		s := fs.Seat(wire.Image, "http://img.test/")
		if found := s.Join(true); found != Miss {
			t.Errorf("found %q", found)
		}
		if _, err := s.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
