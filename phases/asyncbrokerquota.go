package phases

import (
	"context"
	"maps"

	"github.com/llm-coordinator/coordinator/transport/broker"
)

// quota is what became of a slot.
type quota struct {
	reserved bool
	slot     *broker.Slot
	err      error
}

// planQuota asks for a slot of the tenant's quota, if it has one. The command is
// not cut off when the client leaves: a slot that is taken must be released.
func (p *asyncBroker) planQuota(r *Request) Plan {
	tenant := r.async.key.Tenant
	if p.limits[tenant] <= 0 {
		p.pass(r, quota{reserved: true})
		return Plan{}
	}
	b, j := p.broker, r.Journal
	return Plan{Tasks: []Task{{Pool: PoolBroker, Run: func(ctx context.Context) (Result, error) {
		var q quota
		q.err = asking(j, func() (err error) {
			q.reserved, q.slot, err = b.TakeQuota(context.WithoutCancel(ctx), tenant)
			return err
		})
		return q, nil
	}}}}
}

// pass tells the legs what the request may ask for. Who cannot be asked has not
// refused.
func (p *asyncBroker) pass(r *Request, q quota) {
	a := r.async
	a.slot, a.outcome = q.slot, "passed"
	outcome := "overflow"
	switch {
	case q.err != nil:
		outcome, q.reserved = "failed_open", true
		r.note("the quota could not be asked for: taken for reserved")
	case q.reserved:
		outcome = "reserved"
	}
	p.metrics.asyncQuota.WithLabelValues(outcome).Inc()
	h := maps.Clone(r.Header)
	for _, name := range []string{p.objective, p.fairness, aliasObjective, aliasFairness} {
		delete(h, name)
	}
	objective := p.objectives[p.route(r.Model, a.key.Tenant).Tier]
	name := objective.Overflow
	if q.reserved {
		name = objective.Reserved
	}
	if name != "" {
		h[p.objective] = []string{name}
	}
	h[p.fairness] = []string{a.key.Tenant}
	r.Header = h
}
