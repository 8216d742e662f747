package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// pushing is a good encode of image i that pushes under an id, in the chat format or
// in that of generate.
func (r *rig) pushing(t *testing.T, p *renderedPrompt, i int, part, id string, tokens bool) call {
	t.Helper()
	params := fmt.Sprintf(`{"consumer_zmq":"tcp://%s","ec_items":[{"mm_hash":%q,"transfer_id":%q}]}`, strings.TrimPrefix(r.URL(), "http://"), p.hashes()[i], id)
	if tokens {
		body := strings.Replace(p.encodeTokens(t, i), `{"max_tokens":1}`, `{"max_tokens":1,"extra_args":{"ec_transfer_params":`+params+`}}`, 1)
		return call{leg: Encode, id: "x", path: generatePath, body: strings.TrimSuffix(body, "}") + `,"ec_transfer_params":` + params + `}`}
	}
	return call{leg: Encode, id: "x", body: strings.TrimSuffix(p.encodeChat(t, i, part), "}") + `,"ec_transfer_params":` + params + `}`}
}

// pushed is the item of an answer.
func pushedItem(t *testing.T, got answer) string {
	t.Helper()
	return strings.TrimSuffix(strings.TrimPrefix(descriptors(t, got), `{"ec_items":[`), `]}`)
}

func TestPushesAreReadByTheirPlaces(t *testing.T) {
	cat, dog := imagePart(catURI, ""), imagePart(dogURI, "")
	for _, tt := range []struct {
		name   string
		order  []int // of the three items a prefill shows; -1 is none
		status int
		local  int
	}{
		{"in order", []int{0, 1, 2}, 200, 0},
		{"the same image, exchanged", []int{2, 1, 0}, 200, 0},
		{"out of order", []int{1, 0, 2}, 500, 0},
		{"one twice", []int{0, 1, 0}, 500, 0},
		{"one missing", []int{1, 2}, 200, 1},
		{"too many", []int{0, 1, 2, 0}, 500, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, Options{EC: ECMooncake})
			messages := chatOf("", cat, textPart, dog, cat)
			p := r.render("x", messages)
			var items, shown []string
			for i, part := range []string{cat, dog, cat} {
				items = append(items, pushedItem(t, r.send(r.pushing(t, &p, i, part, fmt.Sprint("t-", i), i == 1))))
			}
			if s := r.State(); s.UnreadPushes != 3 || s.EncodeCalls != 3 || s.ViolationCount != 0 {
				t.Errorf("%+v", s)
			}
			for _, i := range tt.order {
				shown = append(shown, items[i])
			}
			body := chatOf(`,"max_tokens":1,"stream":false,"ignore_eos":true,"ec_transfer_params":{"ec_items":[`+strings.Join(shown, ",")+`]},"kv_transfer_params":`+nixlAsk, cat, textPart, dog, cat)
			got := r.send(call{leg: Prefill, id: "x", body: body})
			if s := r.State(); got.status != tt.status || (s.ViolationCount == 0) != (tt.status == 200) || s.LocalEncodes != tt.local {
				t.Errorf("%d %s: %+v", got.status, got.body, s)
			}
			if s := r.State(); tt.status == 200 && s.UnreadPushes != 3-len(tt.order) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestPushesAreStrict(t *testing.T) {
	cat := imagePart(catURI, "")
	for _, tt := range []struct{ name, old, new string }{
		{"another worker", "tcp://127.0.0.1", "tcp://127.0.0.2"},
		{"no scheme", "tcp://", ""},
		{"no id", `"transfer_id":"t"`, `"transfer_id":""`},
		{"another hash", `"ec_items":[{"mm_hash":"`, `"ec_items":[{"mm_hash":"x`},
		{"two items", `"transfer_id":"t"}]`, `"transfer_id":"t"},{}]`},
		{"nothing", `,"ec_transfer_params":`, `,"x":`},
	} {
		r := start(t, Options{EC: ECMooncake})
		p := r.render("x", chatOf("", cat))
		c := r.pushing(t, &p, 0, cat, "t", false)
		if !strings.Contains(c.body, tt.old) {
			t.Fatalf("%s has no %s", c.body, tt.old)
		}
		c.body = strings.Replace(c.body, tt.old, tt.new, 1)
		if got := r.send(c); got.status != http.StatusBadRequest || r.State().ViolationCount == 0 || r.State().UnreadPushes != 0 {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	r := start(t, Options{EC: ECMooncake})
	p := r.render("x", chatOf("", cat))
	r.send(r.pushing(t, &p, 0, cat, "t", false))
	if got := r.send(r.pushing(t, &p, 0, cat, "t", true)); got.status != http.StatusBadRequest {
		t.Errorf("an id is used twice: %+v", got)
	}
	body := chatOf(`,"max_tokens":1,"stream":false,"ignore_eos":true,"ec_transfer_params":{"ec_items":[{"mm_hash":"`+p.hashes()[0]+`","transfer_id":"never"}]},"kv_transfer_params":`+nixlAsk, cat)
	if got := r.send(call{leg: Prefill, id: "x", body: body}); got.status != http.StatusInternalServerError {
		t.Errorf("what was never pushed is waited for: %+v", got)
	}
}
