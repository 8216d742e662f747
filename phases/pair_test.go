package phases

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// pairOf is an attempt whose prefill goes to a gateway that answers so.
func pairOf(t *testing.T, answer http.HandlerFunc) *pair {
	t.Helper()
	b := newBench(t, "kv-sglang")
	b.deps.Prefill = reserving(t, answer)
	p := b.phase(NewPrefillDecode, `{"BootstrapFrom":"static:h"}`).(*prefillDecode)
	return p.begin(b.request(wire.Chat, chat))
}

func refuse(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }

// TestFirstFailureOfAPairIsTheOnlyOne, in either order.
func TestFirstFailureOfAPairIsTheOnlyOne(t *testing.T) {
	failure := errors.New("decode's")
	t.Run("prefill", func(t *testing.T) {
		x := pairOf(t, refuse)
		if _, err := x.runPrefill(context.Background()); wire.FaultOf(err).Status != http.StatusBadRequest {
			t.Errorf("prefill: %v", err)
		}
		if _, err := x.decodeEnded(nil, failure); err != nil {
			t.Errorf("decode: %v", err)
		}
		if err := x.answered(200); err == nil {
			t.Error("decode's answer goes out all the same")
		}
		if x.giveUp() {
			t.Error("decode is worth another attempt")
		}
		if _, err := x.runDecode(context.Background()); err != nil { // it had not begun
			t.Errorf("decode: %v", err)
		}
	})
	t.Run("decode", func(t *testing.T) {
		x := pairOf(t, refuse)
		if _, err := x.decodeEnded(nil, failure); err != failure { //nolint:errorlint // the same
			t.Errorf("decode: %v", err)
		}
		if result, err := x.runPrefill(context.Background()); result != besideDecode("") || err != nil {
			t.Errorf("prefill: %v %v", result, err)
		}
	})
}

// TestPrefillIsIgnoredOnceDecodeStands, and it is said if decode's answer was good.
func TestPrefillIsIgnoredOnceDecodeStands(t *testing.T) {
	for name, tt := range map[string]struct {
		stands func(*pair)
		want   besideDecode
	}{
		"a whole answer":                  {func(x *pair) { x.decodeEnded(Decoded{Status: 200}, nil) }, ignoredFailure},
		"an answer that is an error":      {func(x *pair) { _ = x.answered(503) }, ""},
		"an error and the end of it":      {func(x *pair) { _ = x.answered(503); x.decodeEnded(Decoded{Status: 503}, nil) }, ""},
		"none, and another attempt":       {func(x *pair) { x.giveUp() }, ""},
		"one that is good is none so far": {func(x *pair) { _ = x.answered(200) }, "fails"},
	} {
		arrived, goOn := make(chan struct{}), make(chan struct{})
		x := pairOf(t, func(w http.ResponseWriter, r *http.Request) {
			close(arrived)
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			refuse(w, r)
		})
		ended := make(chan struct{})
		var result Result
		var err error
		go func() {
			defer close(ended)
			result, err = x.runPrefill(context.Background())
		}()
		<-arrived
		tt.stands(x)
		close(goOn)
		<-ended
		if tt.want == "fails" {
			if err == nil {
				t.Errorf("%s: prefill's failure is ignored", name)
			}
		} else if result != tt.want || err != nil {
			t.Errorf("%s: %v, %v, want %q", name, result, err, tt.want)
		}
	}
}
