package media

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// The codes of faults, in the error object that clients see.
const (
	codeInvalid = "invalid_media"
	codeFetch   = "media_fetch_failed"
)

var (
	errTimeout = errors.New("download timed out")
	errBroke   = errors.New("the connection broke off, or the answer made no sense")
	errTLS     = errors.New("the origin's certificate was refused")
)

// failed is a fault of a download.
func (d *download) failed(kind wire.Kind, reason string) *wire.Fault {
	f := wire.Faultf(kind, "the %s at %s could not be fetched: %s", noun(d.allowed.Modality), d.origin, reason)
	f.Code = codeFetch
	return f
}

func (d *download) tooLarge() *wire.Fault {
	return wire.Faultf(wire.LimitExceeded, "the %s at %s is larger than %d bytes", noun(d.allowed.Modality), d.origin, d.allowed.MaxSize)
}

// fault says what an error means that the network or the guard gave. Its text
// holds nothing of an answer: net/http quotes malformed answers in its errors.
func (d *download) fault(err error) *wire.Fault {
	if d.parent.Err() != nil {
		return canceled(d.parent)
	}
	if context.Cause(d.ctx) == errTimeout {
		return d.failed(wire.UpstreamTimeout, "it took too long").Because(errTimeout)
	}
	if e := (*hostError)(nil); errors.As(err, &e) {
		return d.blocked(e)
	}
	if n := (net.Error)(nil); errors.As(err, &n) && n.Timeout() {
		return d.failed(wire.UpstreamTimeout, "it took too long").Because(cause(err))
	}
	return d.failed(wire.UpstreamFailed, "its origin could not be reached or broke off").Because(cause(err))
}

// canceled is the fault of a request whose context has ended: the one that
// ended it, if it was one.
func canceled(ctx context.Context) *wire.Fault {
	cause := context.Cause(ctx)
	if f := (*wire.Fault)(nil); errors.As(cause, &f) {
		return f
	}
	return wire.Faultf(wire.Canceled, "the client left").Because(cause)
}

// blocked is the fault of a host that the guard refused or that does not exist.
// Names that are refused for their address and names that do not exist look the
// same to a client, who could list an internal zone otherwise.
func (d *download) blocked(e *hostError) *wire.Fault {
	host, what := "its host", "is not allowed"
	if d.redirected {
		host = "a redirect's host"
	}
	if e.lookedUp {
		what = "does not exist or is not allowed"
	}
	return d.refuse("%s %s", host, what).Because(e)
}

// cause is what may be logged of an error: what the resolver and the network
// said, which names hosts and addresses only.
func cause(err error) error {
	if e := (*dialError)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*tls.CertificateVerificationError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%w: %.200s", errTLS, e.Err.Error())
	}
	if e := (*net.OpError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%w: %w", errBroke, e)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", errBroke, io.ErrUnexpectedEOF)
	}
	return errBroke
}
