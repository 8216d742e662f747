package cluster

import "testing"

func TestOptionsAreChecked(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
		good    bool
	}{
		{"zero", Options{}, true},
		{"all named", Options{KV: KVSharedStorage, EC: ECSharedStorage, GenerateParams: GenerateParamsOld, TensorBytes: 1}, true},
		{"kv", Options{KV: "x"}, false},
		{"ec", Options{EC: "x"}, false},
		{"generate params", Options{GenerateParams: "x"}, false},
		{"tensors", Options{TensorBytes: -1}, false},
	} {
		if err := test.options.Validate(); (err == nil) != test.good {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
