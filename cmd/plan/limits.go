package plan

import (
	"cmp"
	"slices"

	"github.com/llm-coordinator/coordinator/conf"
)

// limit is something that is full at a rate of requests to all replicas.
type limit struct {
	name string
	// at is the rate at which it is full on average.
	at   float64
	what string
}

// bounds are the sizes of a configuration, planned or as it is.
type bounds struct {
	size     func(pool string) int
	requests int
	mb       int
}

// limits returns what fills up as the rate grows, the first one first.
func (p *Plan) limits(b bounds) (all []limit) {
	replicas := float64(p.question.Replicas)
	add := func(name string, places, each float64, what string) {
		if each > 0 {
			all = append(all, limit{name, replicas * places / each, what})
		}
	}
	for _, pl := range p.pools {
		n := float64(b.size(pl.name))
		add("pool "+pl.name, n, pl.each, short(n)+" places / "+seconds(pl.each))
	}
	n := float64(b.requests)
	add("max_inflight_requests", n, p.stay.whole, short(n)+" requests / "+seconds(p.stay.whole))
	held := float64(b.mb) * (1 << 20)
	add("max_inflight_size", held, p.bytes.each*p.stay.whole, size(held)+" / ("+size(p.bytes.each)+" × "+seconds(p.stay.whole)+")")
	slices.SortStableFunc(all, func(a, b limit) int { return cmp.Compare(a.at, b.at) })
	return all
}

// planned are the sizes of the plan.
func (p *Plan) planned() bounds {
	return bounds{requests: p.inflight.requests, mb: p.bytes.mb, size: func(name string) int {
		pl, _ := p.pool(name)
		return pl.size
	}}
}

// present are the sizes of the configuration as it is.
func (p *Plan) present() bounds {
	a := p.config.Actors
	return bounds{requests: a.Inflight(), mb: a.MaxInflightSize, size: func(name string) int { return poolOf(a.Pools, name).Size }}
}

// poolOf returns the pool of that name in a configuration.
func poolOf(pools conf.Pools, name string) conf.Pool {
	return map[string]conf.Pool{media: pools.Media, render: pools.Render, encode: pools.Encode, prefill: pools.Prefill, decode: pools.Decode}[name]
}
