package media

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// redirecting is an origin whose path /n leads to /n-1 and /0 is an image.
func redirecting(t *testing.T, status int) *world {
	w := hosting(serve(t, func(rw http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if n == 0 {
			io.WriteString(rw, png)
			return
		}
		rw.Header().Set("Location", strconv.Itoa(n-1)+"?"+secret)
		rw.WriteHeader(status)
	}))
	return w
}

func TestRedirectsAreFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		w := redirecting(t, status)
		f := w.fetcher(t)
		if got, err := f.Fetch(t.Context(), wire.Image, "http://img.test/5"); err != nil || string(got) != pngURI {
			t.Errorf("%d: %s, %v", status, got, err)
		}
		if len(w.dialed) != 6 || len(w.lookedUp) != 6 {
			t.Errorf("%d: dialed %q, looked up %q", status, w.dialed, w.lookedUp)
		}
		_, err := f.Fetch(t.Context(), wire.Image, "http://img.test/6")
		wantFault(t, err, wire.BadRequest, "media_fetch_failed")
	}
}

func TestOtherStatusesAreNotFollowed(t *testing.T) {
	for _, status := range []int{300, 304, 305, 306, 399, 201} {
		w := redirecting(t, status)
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/1")
		wantFault(t, err, wire.BadRequest, "media_fetch_failed")
		if len(w.dialed) != 1 {
			t.Errorf("%d: dialed %q", status, w.dialed)
		}
	}
}

func TestRedirectLoopEnds(t *testing.T) {
	asked := 0
	w := hosting(serve(t, func(rw http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(rw, r, r.URL.String(), http.StatusFound)
	}))
	_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/?"+secret)
	wantFault(t, err, wire.BadRequest, "media_fetch_failed")
	if want := "the image at http://img.test could not be fetched: more than 5 redirects"; wire.FaultOf(err).Message != want || asked != 6 {
		t.Errorf("%v after %d requests", err, asked)
	}
}

// TestRedirectsAreJudgedLikeURLs: what is not dialled at once is not dialled
// behind a redirect, and nothing of where it leads is told.
func TestRedirectsAreJudgedLikeURLs(t *testing.T) {
	for _, to := range []string{
		"http://127.0.0.1/", "//127.0.0.1/", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1", "http://[::1]:6379/",
		"http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://0x7f.1/", "http://2130706433/", "http://127.1", "http://127.0.0.1.",
		"http://inside.test/", "http://absent.test/", "https://inside.test:8443/", "http://allowed.test.evil.test",
		"file:///etc/passwd", "ftp://img.test/", "gopher://img.test/", "data:image/png;base64,iVBORw0KGgo=", "javascript:x", "mailto:a@b",
		"http:img.test", "http:///", "http://", "http://user:pw@img.test/", "http://@img.test/", "http://img.test:0/", "http://img.test:99999",
		"http://１２７.0.0.1/", "http://img.test%00/", "http://img test/", ":", "%", "http://img.test/%zz", "http://[::1",
		"http://img.test/" + strings.Repeat("x", maxURL),
	} {
		t.Run(to[:min(len(to), 40)], func(t *testing.T) {
			w := hosting(says(t, "HTTP/1.1 302 Found\r\nLocation: "+to+"\r\nContent-Length: 0\r\n\r\n"))
			w.names["inside.test"] = at("10.1.2.3")
			_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
			wantFault(t, err, wire.BadRequest, "media_fetch_failed")
			if !slices.Equal(w.dialed, []string{"93.184.216.34:80"}) {
				t.Errorf("dialed %q", w.dialed)
			}
			for _, inside := range []string{"127", "10.1", "inside", "169", "user:", "pw", "passwd"} {
				if strings.Contains(wire.FaultOf(err).Message, inside) {
					t.Errorf("message %q", wire.FaultOf(err).Message)
				}
			}
		})
	}
}

func TestRedirectOutOfAllowedDomains(t *testing.T) {
	for _, to := range []string{"http://other.test/", "http://8.8.8.8/"} {
		w := hosting(says(t, "HTTP/1.1 302 Found\r\nLocation: "+to+"\r\n\r\n"))
		w.names["other.test"] = at("8.8.8.8")
		_, err := w.fetcher(t, func(s *Settings) { s.AllowedDomains = []string{"img.test"} }).Fetch(t.Context(), wire.Image, "http://img.test/")
		wantFault(t, err, wire.BadRequest, "media_fetch_failed")
		if len(w.dialed) != 1 || len(w.lookedUp) != 1 {
			t.Errorf("dialed %q, looked up %q", w.dialed, w.lookedUp)
		}
	}
}

func TestMessagesOfRedirects(t *testing.T) {
	for to, want := range map[string]string{
		"http://127.0.0.1/":      "a redirect's host is not allowed",
		"http://inside.test/":    "a redirect's host does not exist or is not allowed",
		"http://absent.test/":    "a redirect's host does not exist or is not allowed",
		"ftp://img.test/":        "a redirect's URL is neither http nor https",
		"http://a:b@img.test/":   "a redirect's URL has a user name or password",
		"http://img.test:66000/": "a redirect's URL has a port that cannot be",
	} {
		w := hosting(says(t, "HTTP/1.1 302 Found\r\nLocation: "+to+"\r\n\r\n"))
		w.names["inside.test"] = at("10.1.2.3")
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
		if got := wire.FaultOf(err).Message; got != "the image at http://img.test could not be fetched: "+want {
			t.Errorf("%s: %q", to, got)
		}
	}
}

// TestRebinding: a name that is public when it is checked and private when it
// is used. Each connection has one look-up, whose addresses are those checked
// and dialled.
func TestRebinding(t *testing.T) {
	public, private := answer{addrs: []string{"93.184.216.34"}}, answer{addrs: []string{"127.0.0.1"}}
	t.Run("first public, then private", func(t *testing.T) {
		w := hosting(says(t, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"+png))
		w.names["img.test"] = []answer{public, private}
		if got, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/"); err != nil || string(got) != pngURI {
			t.Errorf("%s, %v", got, err)
		}
		if !slices.Equal(w.dialed, []string{"93.184.216.34:80"}) || len(w.lookedUp) != 1 {
			t.Errorf("dialed %q, looked up %q", w.dialed, w.lookedUp)
		}
	})
	t.Run("first private, then public", func(t *testing.T) {
		w := hosting(says(t, ""))
		w.names["img.test"] = []answer{private, public}
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
		wantFault(t, err, wire.BadRequest, "media_fetch_failed")
		if len(w.dialed) != 0 {
			t.Errorf("dialed %q", w.dialed)
		}
	})
	t.Run("between a redirect and its target", func(t *testing.T) {
		w := hosting(says(t, "HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n"))
		w.names["img.test"] = []answer{public, private}
		_, err := w.fetcher(t).Fetch(t.Context(), wire.Image, "http://img.test/")
		wantFault(t, err, wire.BadRequest, "media_fetch_failed")
		if !slices.Equal(w.dialed, []string{"93.184.216.34:80"}) || len(w.lookedUp) != 2 {
			t.Errorf("dialed %q, looked up %q", w.dialed, w.lookedUp)
		}
	})
}
