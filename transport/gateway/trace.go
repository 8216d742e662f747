package gateway

import (
	"io"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// tracing reports whether bodies are shown.
func (a *attempt) tracing() bool {
	return a.u.Log != nil && a.u.Log.Enabled(a.ctx, wire.LevelTrace)
}

// trace shows a body, as it is rendered for the log.
func (a *attempt) trace(what, body string) {
	a.u.Log.Log(a.ctx, wire.LevelTrace, what, "request_id", a.id, "upstream", a.u.Name, "body", body)
}

// readError reads the body of an answer that is an error, as far as that may be
// read: so that the connection can be used again, for the trace, and to tell a
// route that is missing.
func (a *attempt) readError() (noRoute bool) {
	body, _ := io.ReadAll(io.LimitReader(a.resp.Body, maxErrorAnswer))
	a.u.explainMissing(a.path, a.resp.StatusCode, body)
	if a.tracing() {
		a.trace("error answer", wire.Redact(body))
	}
	return IsNoRoute(a.resp.StatusCode, body)
}
