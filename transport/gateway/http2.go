package gateway

import (
	"fmt"
	"net/http"
	"time"
)

// protocols says what is spoken to an address: over TLS HTTP/2 if the server
// takes it, else HTTP/1.1, and without TLS HTTP/2 only if it is asked for, and
// then nothing else.
func protocols(secure, h2c bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!h2c)
	p.SetHTTP2(secure)
	p.SetUnencryptedHTTP2(h2c)
	return p
}

// http2Config bounds what HTTP/2 keeps. A connection carries many legs, so a
// dead one that nobody notices would take them all: it is asked for a sign of
// life when nothing has come for a while. What a worker may send ahead of a
// client that reads slowly is held here, once for each leg.
func http2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		SendPingTimeout:           15 * time.Second,
		PingTimeout:               10 * time.Second,
		MaxReceiveBufferPerStream: 512 << 10,
	}
}

// streamReset is how an upstream ends one leg of an HTTP/2 connection while the
// connection lives on. net/http has the type for itself and fills any that looks
// the same.
type streamReset struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (r streamReset) Error() string { return fmt.Sprintf("stream reset with code %d", r.Code) }
