package gateway

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTrialBesideWhatIsJudged closes a half-open breaker, and is no success among the
// failures of a closed one.
func TestTrialBesideWhatIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dial(t, answering(t), tripAfter(2))
		beside := func() {
			t.Helper()
			p, err := r.Permit(nil)
			if err != nil {
				t.Fatal(err)
			}
			p.SucceedTrial()
		}
		r.call(leg("500"))
		beside()
		r.call(leg("500"))
		if s := r.BreakerState(); s != "open" {
			t.Errorf("after two failures it is %s", s)
		}
		wait(6 * time.Second)
		for range 3 {
			beside()
		}
		if s := r.BreakerState(); s != "closed" {
			t.Errorf("after three trials it is %s", s)
		}
		(*Permit)(nil).SucceedTrial()
	})
}

// TestTrialThatIsBack keeps its place for the attempt that follows, however late that
// is sent; an attempt that is on its way does not.
func TestTrialThatIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := dial(t, answering(t), tripAfter(1))
		r.call(leg("500"))
		wait(6 * time.Second)
		var trials [3]*Permit
		for i := range trials {
			p, err := r.Permit(nil)
			if err != nil {
				t.Fatal(err)
			}
			p.Sent()
			wait(trialPatience / 10)
			p.Back()
			trials[i] = p
		}
		wait(10 * trialPatience)
		if _, err := r.Permit(nil); err == nil {
			t.Error("a place was given away")
		}
		trials[0].Sent()
		wait(trialPatience - 1)
		if _, err := r.Permit(nil); err == nil {
			t.Error("the first attempt's time counted for the second")
		}
		wait(2)
		if _, err := r.Permit(nil); err != nil {
			t.Error("an attempt that takes long keeps others out")
		}
		for _, p := range trials {
			p.Succeed()
		}
	})
}
