package cluster

import "encoding/json"

// Values of [Options.GenerateParams]: where a worker of the generate route reads
// transfer params.
const (
	// GenerateParamsOld reads them in sampling_params.extra_args only.
	GenerateParamsOld = "old"
	// GenerateParamsNew lets those at the top level win over these.
	GenerateParamsNew = "new"
	// GenerateParamsChecked is new, and notes a violation unless they are the
	// same in both places.
	GenerateParamsChecked = "both-checked"
)

// transferNames are the fields of transfer params.
var transferNames = []string{"kv_transfer_params", "ec_transfer_params"}

// transferParams returns the transfer params of that name as the worker reads
// them, nil if there are none. On the chat and completions routes they are at the
// top level.
func (l *leg) transferParams(name string) json.RawMessage {
	extra := l.extraArgs()
	switch {
	case l.api.tokensIn && l.cluster.options.GenerateParams == GenerateParamsOld:
		if extra.has(name) {
			return extra[name]
		}
	case l.body.has(name):
		return l.body[name]
	case l.api.tokensIn && extra.has(name):
		return extra[name]
	}
	return nil
}

// extraArgs are those of a generate request's sampling parameters. Anything that
// is no object has none.
func (l *leg) extraArgs() object {
	extra, _, _ := parseObject(l.sampling["extra_args"])
	return extra
}

// noteTransferParams notes transfer params that are where they have no business,
// or not where both old and new workers read them.
func (l *leg) noteTransferParams() {
	extra := l.extraArgs()
	xargs, _, _ := parseObject(l.body["vllm_xargs"])
	for _, name := range transferNames {
		_, atTop := l.body[name]
		_, inside := extra[name]
		allowed := l.name == Prefill || l.name == Reserve && name == "ec_transfer_params" || l.name == Decode && name == "kv_transfer_params" ||
			l.name == Encode && name == "ec_transfer_params" && l.cluster.options.EC == ECMooncake
		if l.cluster.pairs() {
			allowed = (l.name == Prefill || l.name == Reserve) && name == "ec_transfer_params"
		}
		switch {
		case !allowed && (atTop || l.api.tokensIn && inside):
			l.violate("a %s leg has the field %s", l.name, name)
		case l.api.tokensIn && l.cluster.options.GenerateParams == GenerateParamsChecked && atTop != inside:
			l.violate("%s is at the top level: %t; in sampling_params.extra_args: %t", name, atTop, inside)
		case l.api.tokensIn && l.cluster.options.GenerateParams == GenerateParamsChecked && atTop && !same(l.body[name], extra[name]):
			l.violate("%s at the top level is not that in sampling_params.extra_args", name)
		}
		if _, ok := xargs[name]; ok {
			l.violate("field %s in vllm_xargs", name)
		}
	}
}
