package gateway

import (
	"io"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// trace shows a body, as it is rendered for the log, at the level for that.
func (a *attempt) trace(what string, body func() string) {
	log := a.u.Log
	if log == nil || !log.Enabled(a.ctx, wire.LevelTrace) {
		return
	}
	log.Log(a.ctx, wire.LevelTrace, what, "request_id", a.id, "upstream", a.u.Name, "body", body())
}

// readError reads the body of an answer that is an error, as far as that may be
// read: so that the connection can be used again, for the trace, and to tell a
// route that is missing.
func (a *attempt) readError() {
	body, _ := io.ReadAll(io.LimitReader(a.resp.Body, maxErrorAnswer))
	a.u.explainMissing(a.path, a.resp.StatusCode, body)
	a.trace("error answer", func() string { return wire.Redact(body) })
}
