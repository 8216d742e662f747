package kv

import "errors"

func init() {
	Register("kv-sglang", func() (Connector, error) {
		return nil, errors.New("kv-sglang needs prefill and decode in flight together, which the sequential steps " +
			"prefill and decode cannot do; use kv-nixl or kv-shared-storage with them")
	})
}
