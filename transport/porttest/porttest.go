// Package porttest is for tests of programs that listen where they are told.
package porttest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// givenOut are the addresses that tests have been given: between that and the start of
// who listens there nobody does.
var givenOut sync.Map

// The ports are none of those that the system gives to connections.
const (
	lowest = 10000
	number = 21000
)

// FreeAddr returns an address of loopback that nobody listens on. No test of the
// process is given it twice, so that it stays free. It may be called by several
// goroutines.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.N(number))))
		if err != nil {
			continue
		}
		l.Close()
		if _, twice := givenOut.LoadOrStore(l.Addr().String(), true); !twice {
			return l.Addr().String()
		}
	}
	t.Fatal("no free port was found")
	return ""
}
