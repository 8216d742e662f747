package e2e_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// legsOf are the legs of a request, once they have ended.
func (f *fleet) legsOf(id string) []cluster.Leg {
	f.t.Helper()
	if err := f.cluster.Wait(f.ctx, cluster.State.Idle); err != nil {
		f.t.Fatal(err)
	}
	return f.cluster.Legs(id)
}

func names(legs []cluster.Leg) (all []string) {
	for _, l := range legs {
		all = append(all, l.Name)
	}
	return all
}

// TestHeadersComeThrough both ways, and twice.
func TestHeadersComeThrough(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{})
		got := f.post(chatPath+"?a=b%20c&d", shortChat, "X-Request-Id", "the-id", "X-Custom", "1", "X-Custom", "2", "x_under_score", "u",
			"Authorization", "Bearer k", "Accept-Encoding", "gzip", "EPP-Profile", "decode", "Prefer", "if-available", "X-Prefiller-Host-Port", "evil:1")
		legs := f.legsOf("the-id")
		if got.status != 200 || !slices.Equal(names(legs), []string{"render", "prefill", "decode"}) {
			t.Fatalf("%d %s: legs %v; a client's EPP-Profile must lead nowhere", got.status, got.body, names(legs))
		}
		for _, l := range legs {
			for name, want := range map[string]string{"X-Custom": "1,2", "X_under_score": "u", "Authorization": "Bearer k", "X-Coordinator-Hop": "1",
				"X-Request-Id": "the-id", "X-Prefiller-Host-Port": "", "Prefer": "", "Content-Type": "application/json"} {
				if l.Name == cluster.Render && name == "X-Coordinator-Hop" {
					continue
				}
				if got := strings.Join(l.Header.Values(name), ","); got != want {
					t.Errorf("%s: %s is %q, want %q", l.Name, name, got, want)
				}
			}
		}
		decode := legs[2]
		if decode.Query != "a=b%20c&d" || decode.Header.Get("Accept-Encoding") != "gzip" || !strings.Contains(strings.Join(decode.Header.Values("X-Forwarded-For"), ","), "127.0.0.2") {
			t.Errorf("decode: ?%s %v", decode.Query, decode.Header)
		}
		f.settled()
	})
}

// TestRequestIDs: a client's is kept and on all legs, with a suffix on those that
// are sent again; one that is none is replaced.
func TestRequestIDs(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{})
		f.cluster.AddFault(cluster.Fault{Leg: cluster.Prefill, Status: 503, Times: 1})
		got := f.post(chatPath, shortChat, "X-Request-Id", "the-id")
		var ids []string
		for _, l := range f.legsOf("the-id") {
			ids = append(ids, l.Name+" "+l.RequestID)
		}
		if want := []string{"render the-id", "prefill the-id", "prefill the-id-r1", "decode the-id"}; got.status != 200 || !slices.Equal(ids, want) {
			t.Errorf("%d: legs %q, want %q", got.status, ids, want)
		}
		got = f.post(chatPath, shortChat, "X-Request-Id", "not an id")
		id := got.header.Get("X-Request-Id")
		if !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(id) || len(f.legsOf(id)) != 3 {
			t.Errorf("the id is %q, with %d legs", id, len(f.legsOf(id)))
		}
		f.settled()
	})
}

// TestConditionalDecode: a hit is the client's answer, and of a miss nothing
// reaches the client.
func TestConditionalDecode(t *testing.T) {
	behindEach(t, func(t *testing.T, g gateway) {
		f := startFleet(t, g, plan{steps: probingSteps})
		if err := f.cluster.CachePrompt(chatPath, shortChatStream); err != nil {
			t.Fatal(err)
		}
		other := strings.ReplaceAll(shortChatStream, "three", "four")
		for body, legs := range map[string]string{shortChatStream: "render probe", other: "render probe prefill decode"} {
			id := "for-" + strings.Split(legs, " ")[len(strings.Split(legs, " "))-1]
			got := f.post(chatPath, body, "X-Request-Id", id)
			if got.err != nil || got.body != f.direct(chatPath, body, id).body || strings.Join(names(f.legsOf(id)), " ") != legs {
				t.Errorf("%d %v %s: legs %v, want %s", got.status, got.err, got.body, names(f.legsOf(id)), legs)
			}
		}
		f.settled()
	})
}
