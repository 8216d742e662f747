package kv

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// mintedIDs are what connectors call an attempt by.
var mintedIDs = regexp.MustCompile(`(xfer|kv)-[A-Z2-7]{26}`)

// asMinted puts ID in the place of an id and returns the id.
func asMinted(t *testing.T, params string) (text, id string) {
	t.Helper()
	ids := mintedIDs.FindAllString(params, -1)
	if len(ids) != 1 || !json.Valid([]byte(params)) {
		t.Fatalf("%d ids in %s", len(ids), params)
	}
	return strings.Replace(params, ids[0], "ID", 1), ids[0]
}

// TestIdsAreMintedForEachAttempt: both legs of an attempt are told the same, and no
// other attempt is.
func TestIdsAreMintedForEachAttempt(t *testing.T) {
	for _, tt := range []struct {
		name            string
		from            Peer
		prefill, decode string
	}{
		{"kv-mooncake", Peer{"10.0.0.1", 8998, "engine-1"}, `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"ID"}`,
			`{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":"ID","remote_engine_id":"engine-1","remote_bootstrap_addr":"http://10.0.0.1:8998"}`},
		{"kv-mooncake", Peer{"fd00::1", 80, `a"b`}, `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"ID"}`,
			`{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":"ID","remote_engine_id":"a\"b","remote_bootstrap_addr":"http://[fd00::1]:80"}`},
		{"kv-offloading", Peer{"pod.ns.svc", 5710, ""}, `{"remote_decoder":{"kv_request_id":"ID"}}`,
			`{"remote_prefiller":{"kv_request_id":"ID","remote_host":"pod.ns.svc","remote_port":5710}}`},
		{"kv-offloading", Peer{"fd00::1", 5711, ""}, `{"remote_decoder":{"kv_request_id":"ID"}}`,
			`{"remote_prefiller":{"kv_request_id":"ID","remote_host":"fd00::1","remote_port":5711}}`},
	} {
		c := connector(t, tt.name)
		seen := map[string]bool{}
		for range 3 {
			x := c.Begin(tt.from)
			prefill, id := asMinted(t, string(text(x.Prefill().KV)))
			decode, same := asMinted(t, string(text(x.Decode(nil).KV)))
			if prefill != tt.prefill || decode != tt.decode || id != same || seen[id] {
				t.Errorf("%s: %s\n%s\n%s %s", tt.name, prefill, decode, id, same)
			}
			if again := string(text(x.Decode([]byte(`{"transfer_id":"theirs"}`)).KV)); !strings.Contains(again, id) || strings.Contains(again, "theirs") {
				t.Errorf("%s: what prefill answers changes what decode is told: %s", tt.name, again)
			}
			seen[id] = true
		}
	}
}

func TestNoHandOffFromAWorkerThatIsNotKnown(t *testing.T) {
	for name, from := range map[string][]Peer{
		"kv-mooncake":   {{}, {Host: "h", Port: 1}, {Engine: "e"}},
		"kv-offloading": {{}, {Port: 1}},
	} {
		for _, p := range from {
			if told := connector(t, name).Begin(p).Decode(nil); told.HandOff() {
				t.Errorf("%s: %+v: decode is told %s", name, p, text(told.KV))
			}
		}
	}
}

func TestLMCacheSaysNothing(t *testing.T) {
	x := connector(t, "kv-lmcache").Begin(Peer{})
	for _, given := range []string{"", `{}`, `{"first_tok":7}`, `{"num_lmcache_extra_cached_tokens":3}`} {
		if told := x.Decode([]byte(given)); told.HandOff() || x.Prefill().HandOff() {
			t.Errorf("given %s: %s", given, text(told.KV))
		}
	}
}

const moriioAnswer = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1,2],"remote_engine_id":"e","remote_host":"10.0.0.1",` +
	`"remote_handshake_port":6301,"remote_notify_port":61005,"remote_dp_size":1,"tp_size":2,"transfer_id":"t","x":9007199254740993}`

func TestMoriioHandsOnWithSizes(t *testing.T) {
	c := connector(t, "kv-moriio").(Sized).For(Sizes{PrefillTP: 2, DecodeTP: 4, DecodeDP: 8})
	if got, _ := asMinted(t, string(text(c.Begin(Peer{}).Prefill().KV))); got != `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"ID","remote_dp_size":8,"remote_tp_size":4}` {
		t.Errorf("prefill is told %s", got)
	}
	whole := strings.TrimSuffix(moriioAnswer, "}")
	for given, want := range map[string]string{
		moriioAnswer:                    whole + `,"remote_tp_size":2,"remote_dp_rank":0}`,
		whole + `,"remote_tp_size":16}`: whole + `,"remote_tp_size":16,"remote_dp_rank":0}`,
		whole + `,"remote_dp_rank":3}`:  whole + `,"remote_dp_rank":3,"remote_tp_size":2}`,
		strings.Replace(moriioAnswer, `"remote_dp_size":1,`, "", 1):                                    strings.Replace(whole, `"remote_dp_size":1,`, "", 1) + `,"remote_dp_size":1,"remote_tp_size":2,"remote_dp_rank":0}`,
		strings.Replace(whole, `"remote_dp_size":1`, `"remote_dp_size":2`, 1) + `,"remote_dp_rank":1}`: strings.Replace(whole, `"remote_dp_size":1`, `"remote_dp_size":2`, 1) + `,"remote_dp_rank":1,"remote_tp_size":2}`,
	} {
		if got := string(text(c.Begin(Peer{}).Decode([]byte(given)).KV)); got != want {
			t.Errorf("given %s\ndecode is told\n%s\nwant\n%s", given, got, want)
		}
	}
	for _, given := range []string{`{}`, `null`, `{"transfer_id":`, strings.Replace(moriioAnswer, `"e"`, "null", 1), strings.Replace(moriioAnswer, `"remote_notify_port":61005,`, "", 1),
		strings.Replace(moriioAnswer, `"transfer_id":"t"`, `"transfer_id":null`, 1), strings.Replace(moriioAnswer, `"remote_dp_size":1`, `"remote_dp_size":2`, 1)} {
		if told := c.Begin(Peer{}).Decode([]byte(given)); told.HandOff() {
			t.Errorf("given %s decode is told %s", given, text(told.KV))
		}
	}
	if c.Begin(Peer{}).Decode(nil).HandOff() {
		t.Error("given nothing there is a hand-off")
	}
}
