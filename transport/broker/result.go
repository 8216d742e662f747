package broker

import (
	"bytes"
	"encoding/json"
)

// text is a JSON string that is kept decoded.
type text []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *text) UnmarshalText(decoded []byte) error {
	*t = bytes.Clone(decoded)
	return nil
}

// readResult reads an element of a mailbox. What it has besides is newer than
// this, and no matter.
func readResult(element []byte) *Result {
	var r struct {
		Status  int    `json:"status_code"`
		Payload text   `json:"payload"`
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
	}
	if trimmed := bytes.TrimLeft(element, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return &Result{Malformed: true}
	}
	if err := json.Unmarshal(element, &r); err != nil {
		return &Result{Malformed: true}
	}
	return &Result{Status: r.Status, Payload: r.Payload, Code: r.Code, Message: r.Message}
}
