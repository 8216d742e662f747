package wire_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// The golden files are written by hand from the contract (spec/wire.md, 5, 8, 9
// and 11), never from what the code does. There is a directory for each client body:
//
//	client.json                   what the client sent
//	rendered.json                 the render service's answer
//	answer-handoff, answer-none   prefill's answer with and without a hand-off
//	render.json                   the render leg
//	prefill-<kv>[-tokens].json    the prefill leg, with token ids or without
//	decode-<kv>[-tokens][-handoff|-none].json
//	release-<kv>[-tokens].json
//
// Members that stay keep their place and every byte, and so do two neighbours
// with what stands between them; a new value stands in the old one's place; new
// members go last, in the order of the contract's tables. The line end at a
// file's end is not part of it.
const goldenID = "req-1"

// golden returns a file of a client's directory, or nil if there is none.
func golden(t *testing.T, client, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "golden", client, name+".json"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(text, []byte("\n"))
}

// goldenClients are the directories, and the legs that each has files for.
var goldenClients = []struct {
	dir   string
	proto *wire.Protocol
	legs  []string
}{
	{"chat", wire.Chat, allLegs},
	{"completions", wire.Completions, allLegs},
	{"chat-short", wire.Chat, []string{"render", "prefill-nixl-tokens", "decode-nixl-tokens-handoff", "release-nixl-tokens"}},
	{"completions-ids", wire.Completions, []string{"prefill-nixl-tokens", "prefill-shared-tokens", "decode-nixl-tokens-handoff",
		"decode-shared-tokens", "release-nixl-tokens"}},
}

var allLegs = []string{"render",
	"prefill-nixl", "prefill-nixl-tokens", "prefill-shared", "prefill-shared-tokens",
	"decode-nixl-handoff", "decode-nixl-none", "decode-nixl-tokens-handoff", "decode-nixl-tokens-none",
	"decode-shared", "decode-shared-handoff", "decode-shared-none", "decode-shared-tokens", "decode-shared-tokens-handoff", "decode-shared-tokens-none",
	"release-nixl", "release-nixl-tokens"}

func TestLegsAreAsTheContractSays(t *testing.T) {
	for _, c := range goldenClients {
		text := golden(t, c.dir, "client")
		body, err := wire.ParseBody(text)
		if err != nil {
			t.Fatal(err)
		}
		body = wire.Sanitize(body)
		for _, leg := range c.legs {
			t.Run(c.dir+"/"+leg, func(t *testing.T) {
				want := golden(t, c.dir, leg)
				if strings.Contains(leg, "shared") { // a hand-off or none: the same
					want = golden(t, c.dir, strings.TrimSuffix(strings.TrimSuffix(leg, "-handoff"), "-none"))
				}
				p := makeLeg(t, c.dir, c.proto, body, leg)
				if got := p.Bytes(); !bytes.Equal(got, want) || p.Size() != int64(len(want)) {
					t.Errorf("the leg is\n%s\nwant\n%s", got, want)
				}
				if !json.Valid(want) {
					t.Error("the file is no JSON")
				}
			})
		}
		if !bytes.Equal(text, golden(t, c.dir, "client")) {
			t.Errorf("%s: the legs have changed the client's bytes", c.dir)
		}
	}
}

// makeLeg makes a leg as the phases do.
func makeLeg(t *testing.T, dir string, proto *wire.Protocol, body *wire.Body, leg string) wire.Payload {
	t.Helper()
	if leg == "render" {
		return proto.RenderLeg(body)
	}
	name := "kv-nixl"
	if strings.Contains(leg, "shared") {
		name = "kv-shared-storage"
	}
	connector, err := kv.New(name)
	if err != nil {
		t.Fatal(err)
	}
	var tokens wire.Tokens
	if strings.Contains(leg, "-tokens") {
		tokens = goldenTokens(t, dir, proto, body)
	}
	var given []byte
	if !strings.HasSuffix(leg, "-none") {
		given = wire.Transfer(golden(t, dir, "answer-handoff"))
	} else {
		given = wire.Transfer(golden(t, dir, "answer-none"))
	}
	switch kind, _, _ := strings.Cut(leg, "-"); kind {
	case "prefill":
		return proto.PrefillLeg(body, tokens, goldenID, connector.Prefill())
	case "decode":
		return proto.DecodeLeg(body, tokens, connector.Decode(given))
	case "release":
		return proto.ReleaseLeg(body, tokens, connector.Decode(given))
	}
	t.Fatalf("no such leg: %s", leg)
	return wire.Payload{}
}

// goldenTokens finds the prompt's ids in the client's body or in the render
// service's answer.
func goldenTokens(t *testing.T, dir string, proto *wire.Protocol, body *wire.Body) wire.Tokens {
	t.Helper()
	prompt, err := proto.Prompt(body)
	if err != nil {
		t.Fatal(err)
	}
	if prompt.Given.Known() {
		return prompt.Given
	}
	tokens, err := proto.ParseRender(golden(t, dir, "rendered"))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// A file that no leg is compared with would prove nothing.
func TestGoldenFilesAreAllUsed(t *testing.T) {
	for _, c := range goldenClients {
		used := map[string]bool{"client": true, "rendered": true, "answer-handoff": true, "answer-none": true}
		for _, leg := range c.legs {
			used[leg] = true
		}
		files, err := os.ReadDir(filepath.Join("testdata", "golden", c.dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !used[strings.TrimSuffix(f.Name(), ".json")] {
				t.Errorf("%s/%s is not used", c.dir, f.Name())
			}
		}
	}
}
