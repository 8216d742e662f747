package wire

import "testing"

func TestCheckEvents(t *testing.T) {
	const event = "data: {\"choices\":[]}\n\n"
	for text, good := range map[string]bool{
		event + "data: [DONE]\n\n":                 true,
		event + "data: [DONE]":                     true,
		`{"choices":[{"finish_reason":"length"}]}`: true,
		" {\"choices\":[]} \n":                     true,
		"":                                         false,
		event:                                      false,
		"<html>":                                   false,
		"{":                                        false,
		`{"choices":[{"finish_reason":"error"}]}`:                      false,
		"data: {\"error\":{\"code\":500}}\n\ndata: [DONE]\n\n":         false,
		event + "data: {\"error\":{\"code\":500}}\n\ndata: [DONE]\n\n": false,
		"data: {\"error\":{\"code\":400}}\n\ndata: [DONE]\n\n":         true,
	} {
		if err := CheckEvents([]byte(text)); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
