package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/llm-coordinator/coordinator/connectors/ec"
	"github.com/llm-coordinator/coordinator/connectors/kv"
	"github.com/llm-coordinator/coordinator/transport/wire"
	"github.com/llm-coordinator/coordinator/transport/wire/wiretest"
)

// fidelitySeed is the seed of all bodies. A body that fails is made again from
// it and the number that the failure names.
const fidelitySeed = 4

// TestEveryLegIsTheClientsBodyButForWhatTheContractNames, for 100,000 random
// bodies: each leg is compared, byte for byte, with what the generator puts
// together from the texts it has written, and a leg of every ninth body once
// more with what encoding/json finds in both.
func TestEveryLegIsTheClientsBodyButForWhatTheContractNames(t *testing.T) {
	const shards = 4
	n := uint64(100_000)
	if testing.Short() || underRace { // make test runs it whole without the detector
		n = 5_000
	}
	// There is a lot of garbage and next to no heap: by default more than half
	// of the time goes into collecting it.
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	var mu sync.Mutex
	seen := map[string]int{}
	t.Run("bodies", func(t *testing.T) {
		for shard := range uint64(shards) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for i := shard * n / shards; i < (shard+1)*n/shards; i++ {
					kinds := checkBody(t, i)
					mu.Lock()
					for _, k := range kinds {
						seen[k]++
					}
					mu.Unlock()
				}
			})
		}
	})
	for _, p := range []string{wiretest.Chat, wiretest.Completions, wiretest.Generate, wiretest.Responses} {
		for _, kind := range []string{"render", "probe", "prefill", "decode", "alone", "release", "encode", "prefill by tokens", "encode by tokens"} {
			absent := p != wiretest.Chat && p != wiretest.Responses && (kind == "encode" || kind == "encode by tokens" || kind == "prefill by tokens") || p == wiretest.Generate && kind == "render"
			if (seen[p+" "+kind] < 100) != absent {
				t.Errorf("%s: %d legs of kind %s", p, seen[p+" "+kind], kind)
			}
		}
	}
}

// checkBody checks all legs of the body of a number, and returns their kinds.
func checkBody(t *testing.T, i uint64) (kinds []string) {
	c := wiretest.New(fidelitySeed, i, "http://origin.example")
	// Each combination of switches comes to each protocol.
	s := wiretest.Shape{Tokens: i&3 != 0, Inlined: i&4 == 0, TokensIn: i&3 != 0 && i&8 == 0, Nixl: i&16 == 0, EC: i&32 == 0, ID: fmt.Sprintf("id-%d", i)}
	legs, err := makeLegs(c, s)
	if err != nil {
		t.Fatalf("body %d: %v\n%s\nrendered %s", i, err, c.Body, c.Rendered)
	}
	for name, leg := range legs {
		if leg.got != leg.want {
			t.Fatalf("body %d, %+v: the client has sent\n%s\n%s is\n%s\nwant\n%s\nrendered %s\nprefilled %s", i, s, c.Body, name, leg.got, leg.want, c.Rendered, c.Prefilled)
		}
		if leg.size != int64(len(leg.want)) {
			t.Fatalf("body %d: %s: the size is %d, want %d", i, name, leg.size, len(leg.want))
		}
		kinds = append(kinds, c.Protocol+" "+leg.kind)
	}
	if i%9 != 0 {
		return kinds
	}
	whole := []string{"probe", "prefill", "decode", "release"} // legs with all of the client's body
	if kind := whole[i/64%4]; !(kind == "prefill" && c.LegPath(s) != "") {
		if err := compareUntouched(c, kind, legs[kind].got); err != nil {
			t.Fatalf("body %d: %s: %v\nthe client has sent\n%s\nthe leg is\n%s", i, kind, err, c.Body, legs[kind].got)
		}
	}
	return kinds
}

// leg is one as it is made and as it should be.
type leg struct {
	kind, got, want string
	size            int64
}

// makeLegs makes all legs of a request as the phases do.
func makeLegs(c *wiretest.Client, s wiretest.Shape) (map[string]leg, error) {
	proto := map[string]*wire.Protocol{wiretest.Chat: wire.Chat, wiretest.Completions: wire.Completions, wiretest.Generate: wire.Generate, wiretest.Responses: wire.Responses}[c.Protocol]
	came := []byte(c.Body)
	body, err := wire.ParseBody(came)
	if err != nil {
		return nil, err
	}
	body = wire.Sanitize(body)
	if local := proto.LocalKV(body) != ""; local != c.Local {
		return nil, fmt.Errorf("LocalKV says %q", proto.LocalKV(body))
	}
	src, err := sourceOf(proto, body, c, s)
	if err != nil {
		return nil, err
	}
	format, asked := proto.Format(!s.TokensIn, src)
	byTokens := ""
	if c.HasParts() && format == wire.TokensIn {
		byTokens = " by tokens"
	}
	if want := c.LegPath(s); (byTokens != "") != (want != "") || want != "" && proto.LegPath(format) != want || asked != (byTokens != "" || !s.TokensIn || !c.HasParts()) {
		return nil, fmt.Errorf("format %v, asked %t, path %s", format, asked, want)
	}
	exchange, embeddings, err := connectorsOf(c, s)
	if err != nil {
		return nil, err
	}
	params := exchange.Decode(wire.Transfer([]byte(c.Prefilled)))

	legs := map[string]leg{}
	add := func(name, kind string, p wire.Payload, want string) {
		legs[name] = leg{kind, string(p.Append(nil)), want, p.Size()}
	}
	if c.Protocol != wiretest.Generate {
		add("render", "render", proto.RenderLeg(src), c.Render(s))
	}
	add("probe", "probe", proto.ProbeLeg(src), c.Probe(s))
	add("prefill", "prefill"+byTokens, proto.PrefillLeg(src, format, s.ID, wire.Transfers{KV: exchange.Prefill().KV, EC: embeddings}), c.Prefill(s))
	add("decode", "decode", proto.DecodeLeg(src, params), c.Decode(s))
	add("alone", "alone", proto.DecodeLeg(src, wire.Transfers{}), c.DecodeAlone(s))
	add("release", "release", proto.ReleaseLeg(src, params), c.Release(s))
	if c.HasParts() && s.Tokens {
		for i := range c.Media {
			add(fmt.Sprint("encode ", i), "encode"+byTokens, proto.EncodeLeg(src, format, i), c.Encode(s, i))
		}
	}
	if string(came) != c.Body {
		return nil, errors.New("the legs have changed the client's bytes")
	}
	return legs, nil
}

// sourceOf is what is known once media and render have run.
func sourceOf(proto *wire.Protocol, body *wire.Body, c *wiretest.Client, s wiretest.Shape) (src wire.Source, err error) {
	prompt, err := proto.Prompt(body)
	if err != nil {
		return src, err
	}
	if prompt.Media.Len() != len(c.Media) || prompt.Given.Known() != c.Given {
		return src, fmt.Errorf("%d media are found, want %d; given %t, want %t", prompt.Media.Len(), len(c.Media), prompt.Given.Known(), c.Given)
	}
	var inlined *wire.Media
	uris := make([][]byte, len(c.Media))
	for i, im := range c.Media {
		if url, _ := wire.Unquote(prompt.Media.URL(i)); url != im.URL || (prompt.Media.Format(i) != nil || wire.IsDataURI(prompt.Media.URL(i))) != (im.Inlined == "") || prompt.Media.Modality(i).String() != im.Modality {
			return src, fmt.Errorf("image %d is %q, want %q", i, url, im.URL)
		}
		if im.Inlined != "" {
			uris[i] = []byte(im.Inlined)
		}
	}
	if s.Inlined && len(uris) > 0 {
		inlined = prompt.Media.Inline(uris)
	}
	var rendered wire.Tokens
	switch {
	case !s.Tokens:
	case c.Given:
		rendered = prompt.Given
	default:
		if rendered, err = proto.ParseRender([]byte(c.Rendered), prompt.Media, s.TokensIn); err != nil {
			return src, err
		}
	}
	return proto.Source(body, prompt, inlined, rendered), nil
}

// connectorsOf are an exchange of the kv connector, and what prefill is told of the encodes.
func connectorsOf(c *wiretest.Client, s wiretest.Shape) (kv.Exchange, wire.Text, error) {
	names := [2]string{"kv-shared-storage", "ec-shared-storage"}
	if s.Nixl {
		names[0] = "kv-nixl"
	}
	if s.EC {
		names[1] = "ec-nixl"
	}
	handOver, err := kv.New(names[0])
	if err != nil {
		return nil, nil, err
	}
	embeddings, err := ec.New(names[1])
	if err != nil {
		return nil, nil, err
	}
	var answers [][]byte
	for _, a := range c.Encoded {
		params, ok := wire.Descriptors([]byte(a))
		if params == nil || !ok {
			return nil, nil, fmt.Errorf("the descriptors of %s are odd", a)
		}
		answers = append(answers, params)
	}
	merged, err := wire.MergeDescriptors(answers)
	return handOver.Begin(kv.Peer{}), embeddings.Prefill(merged), err
}

// named are the members that the contract names for a leg of that kind. A member
// that is changed within is among them.
func named(c *wiretest.Client, kind string) []string {
	names := []string{"kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "routed_dp_rank",
		"data_parallel_rank", "disagg_prefill_dp_rank", "tokens", "vllm_xargs", "sampling_params"}
	switch c.Protocol {
	case wiretest.Chat:
		if len(c.Media) > 0 {
			names = append(names, "messages")
		}
	case wiretest.Responses:
		if len(c.Media) > 0 {
			names = append(names, "input")
		}
	case wiretest.Completions:
		names = append(names, "prompt")
	case wiretest.Generate:
		names = append(names, "features")
	}
	if kind == "prefill" || kind == "release" {
		names = append(names, "stream", "stream_options", "request_id", "max_completion_tokens")
		if c.Protocol == wiretest.Responses {
			names = append(names, "max_output_tokens", "store", "include", "max_tool_calls")
		}
		if c.Protocol != wiretest.Generate {
			names = append(names, "max_tokens", "min_tokens", "n", "best_of", "stop", "stop_token_ids", "logprobs",
				"top_logprobs", "logprob_token_ids", "ignore_eos")
		}
	}
	return names
}

// compareUntouched compares the members of a body and a leg that the contract
// does not name, as encoding/json finds them: all must be there, in order,
// spelt as they were.
func compareUntouched(c *wiretest.Client, kind, leg string) error {
	names := named(c, kind)
	var both [2][]spelt
	for i, text := range []string{c.Body, leg} {
		members, err := membersOf([]byte(text))
		if err != nil {
			return err
		}
		if i == 0 {
			members = lastOfEach(members)
		}
		both[i] = slices.DeleteFunc(members, func(m spelt) bool { return slices.Contains(names, m.means) })
	}
	if !slices.Equal(both[0], both[1]) {
		return fmt.Errorf("encoding/json finds\n%q in the body, and\n%q in the leg", both[0], both[1])
	}
	return nil
}

// spelt is a member as it is spelt. means is its name in UTF-16, so that
// surrogates without a partner differ.
type spelt struct{ means, name, value string }

// membersOf takes an object apart with encoding/json, which finds where each
// part ends.
func membersOf(text []byte) (all []spelt, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("no object: %v %v", t, err)
	}
	for d.More() {
		lo := int(d.InputOffset())
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		name := bytes.TrimLeft(text[lo:d.InputOffset()], ", \t\r\n")
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		all = append(all, spelt{meaning(string(name)), string(name), string(value)})
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return all, nil
}

func lastOfEach(members []spelt) (kept []spelt) {
	for i, m := range members {
		if !slices.ContainsFunc(members[i+1:], func(later spelt) bool { return later.means == m.means }) {
			kept = append(kept, m)
		}
	}
	return kept
}

// meaning resolves a JSON string. What is ASCII or a whole rune stays itself.
func meaning(quoted string) string {
	var units []uint16
	for in := quoted[1 : len(quoted)-1]; len(in) > 0; {
		switch {
		case in[0] != '\\':
			r, n := utf8.DecodeRuneInString(in)
			units, in = utf16.AppendRune(units, r), in[n:]
		case in[1] == 'u':
			n, _ := strconv.ParseUint(in[2:6], 16, 16)
			units, in = append(units, uint16(n)), in[6:]
		default:
			short := map[byte]uint16{'b': '\b', 't': '\t', 'n': '\n', 'f': '\f', 'r': '\r', '"': '"', '\\': '\\', '/': '/'}
			units, in = append(units, short[in[1]]), in[2:]
		}
	}
	if !slices.ContainsFunc(units, func(u uint16) bool { return utf16.IsSurrogate(rune(u)) }) {
		return string(utf16.Decode(units))
	}
	return fmt.Sprint(units)
}
