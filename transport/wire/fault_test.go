package wire

import (
	"errors"
	"fmt"
	"testing"
)

// codesOf is the contract's table of section 12, for the kinds it has.
var codesOf = map[Kind]string{
	Internal: "internal", LimitExceeded: "limit_exceeded", NotFound: "not_found", MethodNotAllowed: "method_not_allowed",
	UnsupportedEncoding: "unsupported_encoding", TooLarge: "request_too_large", RoutingLoop: "routing_loop",
	UpstreamRejected: "upstream_rejected", UpstreamFailed: "upstream_failed", UpstreamTimeout: "upstream_timeout",
	Unavailable: "upstream_unavailable", QueueFull: "queue_full", ShuttingDown: "shutting_down",
}

func TestKindsHaveTheCodesOfTheContract(t *testing.T) {
	const last = QueuedCalledOff
	if len(kindNames) != int(last)+1 || len(codes) != int(last)+1 {
		t.Fatalf("there are %d kinds, %d names and %d codes", last+1, len(kindNames), len(codes))
	}
	namesSeen, codesSeen := map[string]bool{"": true}, map[string]bool{"": true}
	for k := Internal; k <= last; k++ {
		if want, ok := codesOf[k]; ok && Faultf(k, "x").ErrorCode() != want {
			t.Errorf("%v has the code %q, want %q", k, Faultf(k, "x").ErrorCode(), want)
		}
		if namesSeen[k.String()] || codesSeen[codes[k]] {
			t.Errorf("kind %d: %q, %q: one of them is missing or used twice", k, k, codes[k])
		}
		namesSeen[k.String()], codesSeen[codes[k]] = true, true
	}
}

func TestFaultHasItsOwnCode(t *testing.T) {
	f := Invalid("invalid_prompt", "bad %d", 1)
	if f.Kind != BadRequest || f.ErrorCode() != "invalid_prompt" || f.Message != "bad 1" || f.Error() != "bad 1" {
		t.Errorf("%+v", f)
	}
}

func TestFaultIsFoundInAChain(t *testing.T) {
	cause := errors.New("secret")
	f := Faultf(UpstreamFailed, "prefill failed").Because(cause)
	if got := FaultOf(fmt.Errorf("phase: %w", f)); got != f {
		t.Errorf("FaultOf finds %v", got)
	}
	if !errors.Is(f, cause) || f.Error() != "prefill failed: secret" || f.Message != "prefill failed" {
		t.Errorf("%v", f)
	}
}

func TestOtherErrorsAreHiddenFromTheClient(t *testing.T) {
	cause := errors.New("secret")
	f := FaultOf(cause)
	if f.Kind != Internal || f.ErrorCode() != "internal" || f.Message != "internal error" || !errors.Is(f, cause) {
		t.Errorf("%+v", f)
	}
}
