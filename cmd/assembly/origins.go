package assembly

import (
	"reflect"
	"slices"
	"sync"

	"github.com/llm-coordinator/coordinator/transport/gateway"
)

// origins are those that are in use. Generations share one if its settings are the
// same, so that a reload costs no connections. It may be used by many goroutines.
type origins struct {
	mu  sync.Mutex
	all []*sharedOrigin
}

// sharedOrigin is an origin of one caller, and how many generations use it.
type sharedOrigin struct {
	*gateway.Origin
	caller   string
	settings gateway.OriginSettings
	users    int
}

// take returns the origin that a caller has with these settings, or makes it. It
// is closed when all who took it have called giveBack, which each may do once.
func (os *origins) take(caller string, s gateway.OriginSettings, make func() (*gateway.Origin, error)) (o *gateway.Origin, giveBack func(), err error) {
	os.mu.Lock()
	defer os.mu.Unlock()
	for _, there := range os.all {
		if there.caller == caller && reflect.DeepEqual(there.settings, s) {
			there.users++
			return there.Origin, func() { os.giveBack(there) }, nil
		}
	}
	made, err := make()
	if err != nil {
		return nil, nil, err
	}
	shared := &sharedOrigin{Origin: made, caller: caller, settings: s, users: 1}
	os.all = append(os.all, shared)
	return made, func() { os.giveBack(shared) }, nil
}

func (os *origins) giveBack(o *sharedOrigin) {
	os.mu.Lock()
	defer os.mu.Unlock()
	if o.users--; o.users == 0 {
		os.all = slices.DeleteFunc(os.all, func(other *sharedOrigin) bool { return other == o })
		o.Close()
	}
}
