package cluster

import (
	"iter"
	"strconv"
)

// typedEvent is an event of a Responses stream: which members it has depends on
// its type.
type typedEvent struct {
	Type           string        `json:"type"`
	SequenceNumber int           `json:"sequence_number"`
	Response       *response     `json:"response,omitempty"`
	ItemID         string        `json:"item_id,omitempty"`
	OutputIndex    *int          `json:"output_index,omitempty"`
	ContentIndex   *int          `json:"content_index,omitempty"`
	Item           *responseItem `json:"item,omitempty"`
	Part           *responsePart `json:"part,omitempty"`
	Delta          *string       `json:"delta,omitempty"`
	Text           *string       `json:"text,omitempty"`
}

// failureEvent is how a worker says in a stream that its engine has failed, or that
// it finds the request wrong after all.
func failureEvent(number, code int) event {
	return event{"error", encode(struct {
		Type           string  `json:"type"`
		Code           string  `json:"code"`
		Message        string  `json:"message"`
		Param          *string `json:"param"`
		SequenceNumber int     `json:"sequence_number"`
	}{"error", strconv.Itoa(code), refusalOf(code).message, nil, number})}
}

// responseEvents are the events of a Responses stream, in order, with whether each
// is a token that takes time to make. The last says how it has ended; no [DONE]
// follows.
func (t *text) responseEvents() iter.Seq2[event, bool] {
	return func(yield func(event, bool) bool) {
		number := 0
		send := func(isToken bool, all ...typedEvent) bool {
			for _, e := range all {
				e.SequenceNumber = number
				number++
				if !yield(event{e.Type, encode(e)}, isToken) {
					return false
				}
			}
			return true
		}
		status := t.status()
		begun, whole := t.response("in_progress", false), t.response(status, true)
		whole.KVTransferParams = nil // a stream never has them
		if !send(false, typedEvent{Type: "response.created", Response: &begun}, typedEvent{Type: "response.in_progress", Response: &begun}) {
			return
		}
		if status != "failed" && !t.sendItem(send) {
			return
		}
		send(false, typedEvent{Type: "response." + status, Response: &whole})
	}
}

// sendItem sends the events of the one message of the output, and returns false if
// nobody wants any more.
func (t *text) sendItem(send func(isToken bool, all ...typedEvent) bool) bool {
	zero, said := 0, t.joined()
	item, empty, part := t.item("in_progress"), t.part(""), t.part(said)
	done := t.item("completed", part)
	in := func(kind string) typedEvent {
		return typedEvent{Type: kind, ItemID: item.ID, OutputIndex: &zero, ContentIndex: &zero}
	}
	opened, text, closed := in("response.content_part.added"), in("response.output_text.done"), in("response.content_part.done")
	opened.Part, text.Text, closed.Part = &empty, &said, &part
	if !send(false, typedEvent{Type: "response.output_item.added", OutputIndex: &zero, Item: &item}, opened) {
		return false
	}
	for i, word := range t.words {
		if i > 0 {
			word = " " + word
		}
		delta := in("response.output_text.delta")
		delta.Delta = &word
		if !send(true, delta) {
			return false
		}
	}
	return send(false, text, closed, typedEvent{Type: "response.output_item.done", OutputIndex: &zero, Item: &done})
}
