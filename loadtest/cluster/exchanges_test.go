package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// prefillWith sends a prefill with these transfer params; "" is none.
func (r *rig) prefillWith(prompt, params string) answer {
	more := `,"max_tokens":1,"stream":false,"ignore_eos":true`
	if params != "" {
		more += `,"kv_transfer_params":` + params
	}
	return r.send(call{leg: Prefill, body: chat(prompt, more)})
}

// decodeWithParams likewise.
func (r *rig) decodeWithParams(prompt, params string) answer {
	if params == "" {
		return r.send(call{leg: Decode, body: chat(prompt, "")})
	}
	return r.send(decodeWith("req", prompt, params, ""))
}

// exchangesBy are the params of both legs of each connector that moves KV by an id.
func (r *rig) exchangesBy(kv, id string) (prefill, decode string) {
	host, port, _ := strings.Cut(strings.TrimPrefix(r.URL(), "http://"), ":")
	switch kv {
	case KVMooncake:
		return `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"` + id + `"}`,
			fmt.Sprintf(`{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":%q,"remote_engine_id":%q,"remote_bootstrap_addr":%q}`, id, r.engineID, r.URL())
	case KVOffloading:
		return `{"remote_decoder":{"kv_request_id":"` + id + `"}}`,
			fmt.Sprintf(`{"remote_prefiller":{"kv_request_id":%q,"remote_host":%q,"remote_port":%s}}`, id, host, port)
	}
	return fmt.Sprintf(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":%q,"remote_dp_size":%d,"remote_tp_size":%d}`, id, MoriioDecodeDP, MoriioDecodeTP),
		strings.TrimSuffix(present(string(r.moriioTicket(id))), "}") + fmt.Sprintf(`,"remote_tp_size":%d,"remote_dp_rank":0}`, MoriioPrefillTP)
}

func TestKVMovesById(t *testing.T) {
	for _, kv := range []string{KVMooncake, KVMoriio, KVOffloading} {
		r := start(t, Options{KV: kv})
		prefill, decode := r.exchangesBy(kv, "t-1")
		got := r.prefillWith("p", prefill)
		wantNull := kv != KVMoriio
		if got.status != http.StatusOK || strings.HasSuffix(got.body, `"kv_transfer_params":null}`) != wantNull {
			t.Errorf("%s: prefill: %+v", kv, got)
		}
		held := 1
		if kv == KVOffloading {
			held = 0
		}
		if s := r.State(); s.HeldKV != held {
			t.Errorf("%s: after prefill %+v", kv, s)
		}
		if got := r.decodeWithParams("p", decode); said(t, got.body) != Reply("p") {
			t.Errorf("%s: decode: %+v", kv, got)
		}
		if s := r.State(); s.FetchedKV != 1 || s.HeldKV != 0 {
			t.Errorf("%s: %+v", kv, s)
		}
		r.noViolations()
	}
}

// TestExchangesAreStrict: what a real worker would fail by, or wait for in vain.
func TestExchangesAreStrict(t *testing.T) {
	for _, tt := range []struct {
		kv, name, leg string // leg that is altered
		old, new      string
		status        int // of the altered leg
	}{
		{KVMooncake, "no id", Prefill, `,"transfer_id":"t"`, ``, 500},
		{KVMooncake, "field more", Prefill, `"transfer_id"`, `"x":1,"transfer_id"`, 200},
		{KVMooncake, "engine", Decode, `"engine-`, `"engin-`, 500},
		{KVMooncake, "address", Decode, `http://`, `http://x`, 500},
		{KVMooncake, "scheme", Decode, `http://`, ``, 500},
		{KVMooncake, "switch", Decode, `"do_remote_prefill":true`, `"do_remote_prefill":false`, 500},
		{KVMoriio, "no id", Prefill, `"transfer_id":"t",`, ``, 500},
		{KVMoriio, "no sizes", Prefill, `,"remote_tp_size":4`, ``, 200},
		{KVMoriio, "other size", Decode, `"remote_tp_size":2`, `"remote_tp_size":4`, 500},
		{KVMoriio, "no rank", Decode, `,"remote_dp_rank":0`, ``, 500},
		{KVMoriio, "rounded", Decode, `9007199254740993`, `9007199254740992`, 500},
		{KVOffloading, "no id", Prefill, `"kv_request_id":"t"`, ``, 500},
		{KVOffloading, "address", Prefill, `"t"`, `"t","remote_host":"h"`, 200},
		{KVOffloading, "host", Decode, `127.0.0.1`, `127.0.0.2`, 500},
		{KVOffloading, "port as text", Decode, `"remote_port":`, `"remote_port":0`, 400},
	} {
		t.Run(tt.kv+"/"+tt.name, func(t *testing.T) {
			r := start(t, Options{KV: tt.kv})
			prefill, decode := r.exchangesBy(tt.kv, "t")
			if tt.leg == Prefill {
				if !strings.Contains(prefill, tt.old) {
					t.Fatalf("%s has no %s", prefill, tt.old)
				}
				if got := r.prefillWith("p", strings.Replace(prefill, tt.old, tt.new, 1)); got.status != tt.status {
					t.Errorf("got %+v", got)
				}
			} else {
				if !strings.Contains(decode, tt.old) {
					t.Fatalf("%s has no %s", decode, tt.old)
				}
				r.prefillWith("p", prefill)
				if got := r.decodeWithParams("p", strings.Replace(decode, tt.old, tt.new, 1)); got.status != tt.status {
					t.Errorf("got %+v", got)
				}
			}
			if n := r.State().ViolationCount; n == 0 && tt.status != 400 {
				t.Errorf("%d violations", n)
			}
		})
	}
}

func TestIdsAreUsedOnce(t *testing.T) {
	for _, kv := range []string{KVMooncake, KVMoriio, KVOffloading} {
		r := start(t, Options{KV: kv})
		prefill, decode := r.exchangesBy(kv, "t")
		r.prefillWith("p", prefill)
		if got := r.prefillWith("p", prefill); got.status != 500 || r.State().ViolationCount != 1 {
			t.Errorf("%s: a prefill with an id that was used: %+v", kv, got)
		}
		r.decodeWithParams("p", decode)
		again := r.decodeWithParams("p", decode)
		if kv == KVOffloading { // a cache can be read again
			if said(t, again.body) != Reply("p") {
				t.Errorf("%s: %+v", kv, again)
			}
			continue
		}
		if s := r.State(); kv == KVMooncake && (again.status != 500 || s.ViolationCount != 2) || kv == KVMoriio && s.ReusedHandoffs != 1 {
			t.Errorf("%s: %+v, %+v", kv, again, s)
		}
	}
}

// TestDecodeWaitsForItsPrefill: either may come first.
func TestDecodeWaitsForItsPrefill(t *testing.T) {
	for _, kv := range []string{KVMooncake, KVOffloading} {
		r := start(t, Options{KV: kv})
		prefill, decode := r.exchangesBy(kv, "t")
		later := r.sendLater(context.Background(), decodeWith("req", "p", decode, ""))
		r.wait(func(s State) bool { return s.InFlight[Decode] == 1 })
		r.prefillWith("p", prefill)
		if got := <-later; said(t, got.body) != Reply("p") {
			t.Errorf("%s: %+v", kv, got)
		}
		r.noViolations()
	}
}

// TestDecodeWhosePrefillNeverComes waits as long as a lease.
func TestDecodeWhosePrefillNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startPiped(t, Options{KV: KVMooncake, Lease: 480 * time.Second, PrefillAddress: "10.0.0.1:8998"})
		began := time.Now()
		decode := fmt.Sprintf(`{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":"t","remote_engine_id":%q,"remote_bootstrap_addr":"http://10.0.0.1:8998"}`, r.engineID)
		wantLoadFailure(t, r.send(decodeWith("a", "p", decode, "")), false)
		if took := time.Since(began); took != 480*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestLMCacheFindsKVByTokens(t *testing.T) {
	r := start(t, Options{KV: KVLMCache})
	if got := r.prefillWith("p", ""); !strings.HasSuffix(got.body, `"kv_transfer_params":{}}`) {
		t.Errorf("%+v", got)
	}
	for prompt, found := range map[string]int{"p": 1, "never seen": 1} {
		if got := r.decodeWithParams(prompt, ""); said(t, got.body) != Reply(prompt) {
			t.Errorf("%d %+v", found, got)
		}
	}
	if s := r.State(); s.FetchedKV != 1 || s.Recomputed != 1 || s.HeldKV != 0 || s.ViolationCount != 0 {
		t.Errorf("%+v", s)
	}
	if got := r.decodeWithParams("p", nixlAsk); got.status != 500 || r.State().ViolationCount != 1 {
		t.Errorf("%+v", got)
	}
}

func TestQueryTellsTheEngine(t *testing.T) {
	r := start(t, Options{KV: KVMooncake})
	resp, err := r.client.Get(r.URL() + "/query")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body [200]byte
	n, _ := resp.Body.Read(body[:])
	if got := string(body[:n]); got != `{"0":{"engine_id":"`+r.engineID+`"}}` || r.Count(Query) != 1 {
		t.Errorf("%s", got)
	}
	other := start(t, Options{}) // of another connector: it has none
	resp, err = other.client.Get(other.URL() + "/query")
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
}
