package broker

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

func TestReadResult(t *testing.T) {
	malformed := Result{Malformed: true}
	for element, want := range map[string]Result{
		`{"id":"acme:abc-1","status_code":200,"payload":"{\"id\":\"cmpl-1\"}"}`: {Status: 200, Payload: []byte(`{"id":"cmpl-1"}`)},
		`{"id":"a:b","payload":"{}","error_code":"CANCELLED","error_message":"why"}`: {
			Payload: []byte(`{}`), Code: "CANCELLED", Message: "why"},
		` {"status_code":404,"payload":"<\u003c\u00e9 12345678901234567890","request_token":"t","labels":{"a":[1]}}`: {
			Status: 404, Payload: []byte("<<é 12345678901234567890")},
		`{"status_code":-7}`:                  {Status: -7},
		`{"status_code":200,"payload":""}`:    {Status: 200, Payload: []byte{}},
		`{"status_code":null,"payload":null}`: {},
		`{}`:                                  {},

		``:                                     malformed,
		`null`:                                 malformed,
		`[]`:                                   malformed,
		`"text"`:                               malformed,
		`{"status_code":200`:                   malformed,
		`{"status_code":200} more`:             malformed,
		`{"status_code":"200"}`:                malformed,
		`{"status_code":200.5}`:                malformed,
		`{"status_code":99999999999999999999}`: malformed,
		`{"status_code":200,"payload":{"id":"x"}}`: malformed,
		`{"status_code":200,"payload":["x"]}`:      malformed,
		`{"error_code":1}`:                         malformed,
	} {
		if got := readResult([]byte(element)); !reflect.DeepEqual(*got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", element, *got, want)
		}
	}
}

// FuzzReadResult never fails, reads what it would write, and keeps nothing of
// the element.
func FuzzReadResult(f *testing.F) {
	for _, element := range []string{`{"status_code":200,"payload":"{}"}`, `{"error_code":"CANCELLED"}`, `[1]`, `{"payload":"\ud800\n"}`, "{\"payload\":\"\xff\"}"} {
		f.Add([]byte(element))
	}
	f.Fuzz(func(t *testing.T, element []byte) {
		got := readResult(element)
		if got.Malformed {
			if !reflect.DeepEqual(*got, Result{Malformed: true}) {
				t.Errorf("malformed, and %+v", got)
			}
			return
		}
		if !json.Valid(element) {
			t.Fatalf("read %q", element)
		}
		payload := bytes.Clone(got.Payload)
		clear(element)
		if !bytes.Equal(payload, got.Payload) {
			t.Error("the payload is a part of the element")
		}
		again, err := json.Marshal(map[string]any{"status_code": got.Status, "payload": string(got.Payload), "error_code": got.Code, "error_message": got.Message})
		if err != nil {
			t.Fatal(err)
		}
		second := readResult(again)
		if second.Status != got.Status || !bytes.Equal(second.Payload, got.Payload) || second.Code != got.Code || second.Message != got.Message {
			t.Errorf("read %+v, then %+v", got, second)
		}
	})
}
