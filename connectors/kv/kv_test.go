package kv

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connector returns the connector of that name.
func connector(t *testing.T, name string) Connector {
	t.Helper()
	c, err := New(name)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != name {
		t.Errorf("%s calls itself %s", name, c.Name())
	}
	return c
}

// text joins the pieces of transfer params; nil stays nil.
func text(params wire.Text) []byte { return bytes.Join(params, nil) }

func wantText(t *testing.T, got wire.Text, want string) {
	t.Helper()
	if string(text(got)) != want {
		t.Errorf("params are\n%s\nwant\n%s", text(got), want)
	}
}

func TestPrefillParams(t *testing.T) {
	for name, want := range map[string]string{
		"kv-nixl":           `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`,
		"kv-shared-storage": `{"do_remote_decode":true,"do_remote_prefill":false}`,
	} {
		c := connector(t, name)
		for range 2 { // anew for each attempt
			wantText(t, c.Begin(Peer{}).Prefill().KV, want)
		}
	}
}

func TestNixlHandsOnWhatPrefillAnswered(t *testing.T) {
	c := connector(t, "kv-nixl")
	for _, tt := range []struct{ given, want string }{
		{`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1,2],"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":5600,"tp_size":8}`,
			`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1,2],"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":5600,"tp_size":8}`},
		// both switches are turned, whatever they were
		{`{"do_remote_decode":true,"remote_engine_id":"e","do_remote_prefill":null,"remote_host":"h","remote_port":1}`,
			`{"do_remote_decode":false,"remote_engine_id":"e","do_remote_prefill":true,"remote_host":"h","remote_port":1}`},
		{`{"remote_engine_id":"e","remote_host":"h","remote_port":1}`,
			`{"remote_engine_id":"e","remote_host":"h","remote_port":1,"do_remote_decode":false,"do_remote_prefill":true}`},
		// unknown fields and every spelling stay
		{` { "remote_engine_id" : "\u0065\/é" , "remote_host":"h", "remote_port":5600.0, "x":9007199254740993, "y" : { "b":1.0, "a" : [ 1e2, -0 ] }, "z":null } `,
			`{"remote_engine_id" : "\u0065\/é" , "remote_host":"h", "remote_port":5600.0, "x":9007199254740993, "y" : { "b":1.0, "a" : [ 1e2, -0 ] }, "z":null,"do_remote_decode":false,"do_remote_prefill":true}`},
		// types are the workers' affair; these are not null
		{`{"remote_engine_id":0,"remote_host":"","remote_port":false}`,
			`{"remote_engine_id":0,"remote_host":"","remote_port":false,"do_remote_decode":false,"do_remote_prefill":true}`},
		{`{"remote_engine_id":"e","remote_host":"h","remote_port":1,"remote_block_ids":null}`,
			`{"remote_engine_id":"e","remote_host":"h","remote_port":1,"remote_block_ids":null,"do_remote_decode":false,"do_remote_prefill":true}`},
		{`{"remote_\u0065ngine_id":"e","remote_host":null,"remote_host":"h","remote_port":1,"do_remote_decod\u0065":true}`,
			`{"remote_\u0065ngine_id":"e","remote_host":"h","remote_port":1,"do_remote_decode":false,"do_remote_prefill":true}`},
	} {
		given := []byte(tt.given)
		got := c.Begin(Peer{}).Decode(given).KV
		wantText(t, got, tt.want)
		if !json.Valid(text(got)) {
			t.Errorf("%s is no JSON", text(got))
		}
		wantText(t, c.Begin(Peer{}).Decode(given).KV, tt.want) // a second attempt
		if string(given) != tt.given {
			t.Errorf("what was given has become %s", given)
		}
	}
}

func TestNixlWithoutHandOffSendsNothing(t *testing.T) {
	c := connector(t, "kv-nixl")
	full := map[string]string{"remote_engine_id": `"e"`, "remote_host": `"h"`, "remote_port": "1"}
	given := []string{"", `{}`, `null`, `[]`, `"x"`, `1`, `{"do_remote_prefill":true}`, `{"remote_engine_id"`, `{"remote_engine_id":"e","remote_host":"h","remote_port":1`,
		`{"remote_engine_id":"e","remote_host":"h","remote_port":1,"remote_port":null}`,
		`{"params":{"remote_engine_id":"e","remote_host":"h","remote_port":1}}`}
	for without := range full {
		var missing, null []string
		for name, value := range full {
			if name == without {
				null = append(null, `"`+name+`" : null `)
				continue
			}
			missing, null = append(missing, `"`+name+`":`+value), append(null, `"`+name+`":`+value)
		}
		given = append(given, `{`+strings.Join(missing, ",")+`}`, `{`+strings.Join(null, ",")+`}`)
	}
	for _, g := range given {
		if got := c.Begin(Peer{}).Decode([]byte(g)).KV; got != nil {
			t.Errorf("given %s decode is told %s", g, text(got))
		}
	}
	if got := c.Begin(Peer{}).Decode(nil).KV; got != nil {
		t.Errorf("given nothing decode is told %s", text(got))
	}
}

func TestSharedStorageNeedsNoHandOff(t *testing.T) {
	c := connector(t, "kv-shared-storage")
	for _, given := range [][]byte{nil, []byte(`{}`), []byte(`{"remote_host":"h","do_remote_decode":true}`), []byte(`null`)} {
		wantText(t, c.Begin(Peer{}).Decode(given).KV, `{"do_remote_decode":false,"do_remote_prefill":true}`)
	}
}

func TestWhichConnectorsPin(t *testing.T) {
	for name, want := range map[string]bool{"kv-nixl": true, "kv-mooncake": true, "kv-moriio": true,
		"kv-shared-storage": false, "kv-lmcache": false, "kv-offloading": false} {
		if got := connector(t, name).Pins(); got != want {
			t.Errorf("%s: Pins is %v", name, got)
		}
	}
}

func TestUnknownConnectorSaysWhichThereAre(t *testing.T) {
	for name, want := range map[string]string{
		"kv-nxil": `unknown kv connector "kv-nxil" (there are: kv-lmcache, kv-mooncake, kv-moriio, kv-nixl, kv-offloading, kv-sglang, kv-shared-storage)`,
		"":        `unknown kv connector "" (there are: kv-lmcache, kv-mooncake, kv-moriio, kv-nixl, kv-offloading, kv-sglang, kv-shared-storage)`,
		"KV-NIXL": `unknown kv connector "KV-NIXL" (there are: kv-lmcache, kv-mooncake, kv-moriio, kv-nixl, kv-offloading, kv-sglang, kv-shared-storage)`,
	} {
		if c, err := New(name); err == nil || err.Error() != want || c != nil {
			t.Errorf("New(%q) = %v, %v, want %s", name, c, err, want)
		}
	}
}

func TestNamesAreSorted(t *testing.T) {
	if got, want := Names(), []string{"kv-lmcache", "kv-mooncake", "kv-moriio", "kv-nixl", "kv-offloading", "kv-sglang", "kv-shared-storage"}; !slices.Equal(got, want) {
		t.Errorf("Names() = %q, want %q", got, want)
	}
}

func TestNameThatIsTakenPanics(t *testing.T) {
	defer func() {
		if got := recover(); got != "kv connector registered twice: kv-nixl" {
			t.Errorf("Register panics with %v", got)
		}
	}()
	Register("kv-nixl", func() (Connector, error) { return nixl{}, nil })
}
