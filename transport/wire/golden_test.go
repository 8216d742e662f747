package wire_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/connectors/ec"
	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// The golden files are written by hand from the contract (spec/wire.md, 5 to 9
// and 11), never from what the code does. There is a directory for each client body:
//
//	client.json                   what the client sent
//	inlined.json                  for each medium what replaces its URL, null for what is not downloaded
//	rendered.json                 the render service's answer
//	answers-encode.json           the answers of the encode workers
//	answer-handoff, answer-none   prefill's answer with and without a hand-off
//	render.json                   the render leg
//	encode-<image>-tokens[-generate].json
//	probe[-tokens].json           the conditional decode
//	prefill-<kv>[-tokens][-generate][-ec].json
//	                              the prefill leg, with token ids or without, in
//	                              the generate format, with ec-nixl's descriptors
//	decode-<kv>[-tokens][-handoff|-none].json
//	release-<kv>[-tokens].json
//
// Members that stay keep their place and every byte, and so do two neighbours
// with what stands between them; a new value stands in the old one's place; new
// members go last, in the order of the contract's tables. The line end at a
// file's end is not part of it.
//
// The contract does not say in which order new members go into a generate
// client's prefill, nor where stream stands in a chat client's prefill in the
// generate format. There the files are as the code has it: stream, request_id,
// sampling_params and the transfer params; stream behind sampling_params. A
// kwargs_data with nulls put in has the modalities in the order of mm_hashes.
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
	{"chat", wire.Chat, append([]string{"prefill-nixl-tokens-generate", "prefill-shared-tokens-generate"}, allLegs...)},
	{"completions", wire.Completions, allLegs},
	{"chat-short", wire.Chat, []string{"render", "prefill-nixl-tokens", "decode-nixl-tokens-handoff", "release-nixl-tokens"}},
	{"completions-ids", wire.Completions, []string{"prefill-nixl-tokens", "prefill-shared-tokens", "decode-nixl-tokens-handoff",
		"decode-shared-tokens", "release-nixl-tokens"}},
	{"chat-image", wire.Chat, append([]string{"encode-0-tokens", "encode-0-tokens-generate", "prefill-nixl", "decode-nixl-handoff", "probe"}, imageLegs...)},
	{"chat-images", wire.Chat, append([]string{"encode-0-tokens", "encode-0-tokens-generate", "encode-1-tokens", "encode-1-tokens-generate"}, imageLegs...)},
	{"chat-image-kwargs", wire.Chat, []string{"render", "encode-0-tokens", "encode-0-tokens-generate", "probe-tokens", "prefill-nixl-tokens",
		"prefill-nixl-tokens-generate", "decode-nixl-tokens-handoff", "release-nixl-tokens"}},
	{"chat-media", wire.Chat, []string{"render", "probe-tokens", "encode-0-tokens", "encode-0-tokens-generate", "encode-1-tokens", "encode-1-tokens-generate",
		"encode-2-tokens", "encode-2-tokens-generate", "encode-3-tokens", "encode-3-tokens-generate",
		"prefill-nixl-tokens-ec", "prefill-nixl-tokens-generate-ec", "decode-nixl-tokens-handoff"}},
	{"responses", wire.Responses, []string{"render", "probe", "probe-tokens", "prefill-nixl", "prefill-nixl-tokens", "prefill-shared-tokens",
		"decode-nixl-tokens-handoff", "decode-nixl-tokens-none", "decode-shared-tokens", "release-nixl-tokens"}},
	{"responses-image", wire.Responses, []string{"render", "probe-tokens", "encode-0-tokens", "encode-1-tokens", "encode-0-tokens-generate",
		"prefill-nixl-tokens-ec", "prefill-nixl-tokens-generate", "decode-nixl-tokens-handoff", "release-nixl-tokens"}},
	{"generate", wire.Generate, append([]string{"release-nixl"}, generateLegs...)},
	{"generate-bare", wire.Generate, append([]string{"release-nixl"}, generateLegs...)},
	{"generate-features", wire.Generate, generateLegs},
	{"generate-nulls", wire.Generate, generateLegs},
	{"generate-missing", wire.Generate, generateLegs},
}

var imageLegs = []string{"render", "probe-tokens",
	"prefill-nixl-tokens", "prefill-nixl-tokens-ec", "prefill-nixl-tokens-generate", "prefill-nixl-tokens-generate-ec",
	"prefill-shared-tokens", "prefill-shared-tokens-ec", "prefill-shared-tokens-generate", "prefill-shared-tokens-generate-ec",
	"decode-nixl-tokens-handoff", "decode-nixl-tokens-none", "decode-shared-tokens", "release-nixl-tokens"}

var generateLegs = []string{"probe", "prefill-nixl", "prefill-shared", "decode-nixl-handoff", "decode-nixl-none", "decode-shared"}

var allLegs = []string{"render", "probe", "probe-tokens",
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
				if got := p.Append(nil); !bytes.Equal(got, want) || p.Size() != int64(len(want)) {
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
	words := strings.Split(leg, "-")
	src := goldenSource(t, dir, proto, body, slices.Contains(words, "tokens"))
	format, asked := proto.Format(!slices.Contains(words, "generate"), src)
	if !asked {
		t.Fatal("it cannot have this format")
	}
	switch words[0] {
	case "render":
		return proto.RenderLeg(src)
	case "probe":
		return proto.ProbeLeg(src)
	case "encode":
		image, err := strconv.Atoi(words[1])
		if err != nil {
			t.Fatal(err)
		}
		return proto.EncodeLeg(src, format, image)
	}
	connector, err := kv.New(map[string]string{"nixl": "kv-nixl", "shared": "kv-shared-storage"}[words[1]])
	if err != nil {
		t.Fatal(err)
	}
	answer := "answer-handoff"
	if slices.Contains(words, "none") {
		answer = "answer-none"
	}
	given := wire.Transfer(golden(t, dir, answer))
	exchange := connector.Begin(kv.Peer{})
	switch words[0] {
	case "prefill":
		told := exchange.Prefill()
		told.EC = goldenEmbeddings(t, dir, slices.Contains(words, "ec"))
		return proto.PrefillLeg(src, format, goldenID, told)
	case "decode":
		return proto.DecodeLeg(src, exchange.Decode(given))
	case "release":
		return proto.ReleaseLeg(src, exchange.Decode(given))
	}
	t.Fatalf("no such leg: %s", leg)
	return wire.Payload{}
}

// goldenSource is what is known of a request once media and render have run;
// without tokens there was no render step.
func goldenSource(t *testing.T, dir string, proto *wire.Protocol, body *wire.Body, tokens bool) wire.Source {
	t.Helper()
	prompt, err := proto.Prompt(body)
	if err != nil {
		t.Fatal(err)
	}
	var inlined *wire.Media
	if text := golden(t, dir, "inlined"); text != nil {
		var uris [][]byte
		wire.EachElement(text, func(uri []byte) bool {
			if wire.IsNull(uri) {
				uri = nil
			}
			uris = append(uris, uri)
			return true
		})
		if len(uris) != prompt.Media.Len() {
			t.Fatalf("%d images are found, want %d", prompt.Media.Len(), len(uris))
		}
		inlined = prompt.Media.Inline(uris)
	}
	var rendered wire.Tokens
	switch {
	case !tokens:
	case prompt.Given.Known():
		rendered = prompt.Given
	default:
		if rendered, err = proto.ParseRender(golden(t, dir, "rendered"), prompt.Media, true); err != nil {
			t.Fatal(err)
		}
	}
	return proto.Source(body, prompt, inlined, rendered)
}

// goldenEmbeddings are what prefill is told of the encode workers' answers, by
// ec-nixl or by ec-shared-storage.
func goldenEmbeddings(t *testing.T, dir string, nixl bool) wire.Text {
	t.Helper()
	name := "ec-shared-storage"
	if nixl {
		name = "ec-nixl"
	}
	connector, err := ec.New(name)
	if err != nil {
		t.Fatal(err)
	}
	var answers [][]byte
	wire.EachElement(golden(t, dir, "answers-encode"), func(answer []byte) bool {
		params, _ := wire.Descriptors(answer)
		answers = append(answers, params)
		return true
	})
	merged, err := wire.MergeDescriptors(answers)
	if err != nil {
		t.Fatal(err)
	}
	return connector.Prefill(merged)
}

// A file that no leg is compared with would prove nothing.
func TestGoldenFilesAreAllUsed(t *testing.T) {
	for _, c := range goldenClients {
		used := map[string]bool{"client": true, "rendered": true, "answer-handoff": true, "answer-none": true,
			"inlined": true, "answers-encode": true}
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
