package admin

import (
	"time"

	"github.com/llm-coordinator/coordinator/transport/journal"
	"github.com/llm-coordinator/coordinator/transport/server"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// hostile is the record of a request whose client chose names that are HTML.
var hostile = func() server.Record {
	const name = `<img src=x onerror=alert(1)>`
	at := time.Now()
	j := &journal.Journal{}
	j.BeginStep("encode", at)
	j.Waited("encode", at, at.Add(time.Second))
	call := j.Begin("encode", name, at)
	call.Answered(500, at.Add(time.Second))
	call.Failed("500")
	call.End(at.Add(time.Second))
	j.Note(name)
	j.EndStep(1, "upstream_failed", at.Add(time.Second))
	running := server.Running{Serial: "one-1", ID: name, Tenant: name, Protocol: "chat", Model: name, Stream: true, Received: at, Read: at, Journal: j}
	return server.Record{Running: running, Status: 502, Code: "upstream_failed", Cause: wire.Faultf(wire.UpstreamFailed, "encode answered 500"),
		Total: 2 * time.Second, Path: journal.EncodePrefillDecode, Entry: j.Entry()}
}()
