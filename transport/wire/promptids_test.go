package wire

import (
	"bytes"
	"testing"
)

func TestWithPromptIDs(t *testing.T) {
	ids := Tokens{IDs: []byte("[1, 2,3]"), Count: 3}
	for _, tt := range []struct {
		name, kv string
		proto    *Protocol
		src      Source
		want     string
	}{
		{"a chat", `{"a":1}`, Chat, Source{Tokens: ids}, `{"a":1,"prompt_token_ids":[1, 2,3]}`},
		{"nothing else to say", `{}`, Chat, Source{Tokens: ids}, `{"prompt_token_ids":[1, 2,3]}`},
		{"a worker's own", `{"prompt_token_\u0069ds":null,"z":9007199254740993}`, Chat, Source{Tokens: ids}, `{"prompt_token_ids":[1, 2,3],"z":9007199254740993}`},
		{"not rendered", `{"a":1}`, Chat, Source{}, `{"a":1}`},
		{"media", `{"a":1}`, Chat, Source{Tokens: Tokens{IDs: ids.IDs, Count: 3, Features: Features{Hashes: []byte(`{"image":["x"]}`), Items: make([]Span, 1)}}}, `{"a":1}`},
		{"unknown media", `{"a":1}`, Chat, Source{Tokens: Tokens{IDs: ids.IDs, Count: 3, Features: Features{Hashes: []byte(`{"smell":["x"]}`)}}}, `{"a":1}`},
		{"completions", `{"a":1}`, Completions, Source{Tokens: ids}, `{"a":1}`},
		{"generate", `{"a":1}`, Generate, Source{Tokens: ids}, `{"a":1}`},
	} {
		given := Transfers{KV: Text{[]byte(tt.kv[:1]), []byte(tt.kv[1:])}}
		if got := bytes.Join(tt.proto.WithPromptIDs(tt.src, given).KV, nil); string(got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := Chat.WithPromptIDs(Source{Tokens: ids}, Transfers{Fields: []Field{{Name: "bootstrap_room", Value: Raw("1")}}}); got.KV != nil {
		t.Errorf("without transfer params there are %s", bytes.Join(got.KV, nil))
	}
}
