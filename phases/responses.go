package phases

import (
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/llm-coordinator/coordinator/transport/gateway"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Values of a render step's param responses.
const (
	responsesAuto = "auto"
	responsesOff  = "off"
)

// Offer is whether the render service renders requests of the Responses API, as
// far as is known: older ones do not. It is found out by such requests themselves,
// so that nothing has to be asked at startup: the first is rendered if it can be,
// and one that cannot is served by decode alone, as it was before there was
// anything to find out. It may be used by many goroutines.
type Offer struct {
	recheck time.Duration
	log     *slog.Logger // nil logs nothing
	made    time.Time
	// state is unknown, or known to be there, or when it was found missing, in
	// nanoseconds from made on.
	state atomic.Int64
}

const (
	offerUnknown int64 = 0
	offerThere   int64 = 1
)

// Known reports whether the service is known to render such requests.
func (o *Offer) Known() bool { return o.state.Load() == offerThere }

// Missing reports whether the service is known not to, and is not to be asked
// again yet.
func (o *Offer) Missing() bool {
	at := o.state.Load()
	return at > offerThere && time.Since(o.made)-time.Duration(at) < o.recheck
}

// found notes what the service has answered, and tells operators if that is news.
func (o *Offer) found(there bool) {
	now := offerThere
	if !there {
		now = max(offerThere+1, int64(time.Since(o.made)))
	}
	if there && o.state.Load() == offerThere {
		return
	}
	before := o.state.Swap(now)
	if o.log == nil {
		return
	}
	switch {
	case there:
		o.log.Info("requests on " + wire.Responses.Path + " are rendered and run through the pipeline")
	case !there && before <= offerThere:
		o.log.Info("the render service has no such route: requests on "+wire.Responses.Path+" are served by decode alone",
			"route", wire.Responses.RenderPath, "asked_again_after", o.recheck)
	}
}

// Responses returns what is known of how requests of the Responses API can be
// served, nil if the pipeline does not serve them: it has no render step, or one
// that is not to ask, or a step prefill-decode, whose workers have no such route
// for both legs.
func (p *Pipeline) Responses() (o *Offer) {
	for _, ph := range p.phases {
		switch ph := ph.(type) {
		case *render:
			o = ph.offer
		case *prefillDecode:
			return nil
		}
	}
	return o
}

// mayDoWithout reports whether a request is served though it cannot be rendered:
// one of the Responses API, unless the service is known to render those.
func (p *render) mayDoWithout(r *Request) bool {
	return r.Protocol == wire.Responses && p.offer != nil && !p.offer.Known()
}

// Why a request is served by decode alone that was to be rendered, in metrics.
const (
	unrenderedNoRoute = "responses_no_render_route"
	unrenderedFailed  = "responses_render_failed"
)

// Recover has decode alone serve a request of the Responses API for which the
// render service has no route, or which failed there while nobody knew whether it
// has one. Once it is known to have one its errors are the request's.
func (p *render) Recover(r *Request, err error) (Verdict, error) {
	if r.Protocol != wire.Responses || p.offer == nil {
		return Verdict{}, err
	}
	fault, without := wire.FaultOf(err), p.mayDoWithout(r)
	switch {
	case errors.Is(err, gateway.ErrNoRoute):
		p.offer.found(false)
		r.LocalKV = unrenderedNoRoute
	case fault.Status == http.StatusBadRequest || fault.Status == http.StatusUnprocessableEntity || fault.Status == http.StatusNotFound:
		p.offer.found(true) // somebody has looked at the body
		return Verdict{}, err
	case without && (fault.Kind == wire.UpstreamFailed || fault.Kind == wire.UpstreamTimeout || fault.Kind == wire.Unavailable):
		r.LocalKV = unrenderedFailed
	default:
		return Verdict{}, err
	}
	r.bypass(p.metrics)
	return Next, nil
}
