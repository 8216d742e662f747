package budget

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChargesAreGivenBackExactlyOnce(t *testing.T) {
	b := New(100)
	a, other := b.Open(), b.Open()
	if err := a.Charge(60); err != nil {
		t.Fatal(err)
	}
	err := other.Charge(41)
	if f := wire.FaultOf(err); f.Kind != wire.QueueFull || f.RetryAfter != "1" || b.Used() != 60 || b.Refused() != 1 {
		t.Errorf("%v, used %d, refused %d", err, b.Used(), b.Refused())
	}
	if other.TryCharge(41) || b.Used() != 60 || b.Refused() != 1 {
		t.Errorf("used %d, refused %d", b.Used(), b.Refused())
	}
	if err := other.Charge(40); err != nil || b.Used() != 100 {
		t.Errorf("%v, used %d", err, b.Used())
	}
	a.Refund(10)
	a.Close()
	a.Close()
	a.Refund(10)
	if err := a.Charge(1); err == nil || b.Used() != 40 {
		t.Errorf("%v, used %d", err, b.Used())
	}
	other.Close()
	if b.Used() != 0 {
		t.Errorf("used %d", b.Used())
	}
}

// TestWhatIsKeptStaysCharged until nobody keeps it, though its account is
// closed.
func TestWhatIsKeptStaysCharged(t *testing.T) {
	b := New(100)
	a := b.Open()
	if err := a.Charge(60); err != nil {
		t.Fatal(err)
	}
	one, two := a.Keep(), a.Keep()
	a.Close()
	if err := a.Charge(1); err == nil {
		t.Error("a closed account was charged")
	}
	a.Refund(10)
	one()
	one()
	if b.Used() != 50 {
		t.Errorf("used %d while it is kept", b.Used())
	}
	two()
	if b.Used() != 0 {
		t.Errorf("used %d", b.Used())
	}
	early := b.Open()
	done := early.Keep()
	early.Charge(10)
	done()
	if b.Used() != 10 {
		t.Errorf("used %d before the account is closed", b.Used())
	}
	early.Close()
	if b.Used() != 0 {
		t.Errorf("used %d", b.Used())
	}
}

func TestWithoutABudgetNothingIsCounted(t *testing.T) {
	var none *Account
	var b *Budget
	for _, a := range []*Account{none, b.Open()} {
		if err := a.Charge(1 << 60); err != nil {
			t.Error(err)
		}
		a.Refund(1)
		a.Keep()()
		a.Close()
	}
}

func TestManyAtOnce(t *testing.T) {
	b := New(1000)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range 1000 {
				a := b.Open()
				for range rnd.IntN(5) {
					if n := rnd.Int64N(300); a.Charge(n) == nil && rnd.IntN(2) == 0 {
						a.Refund(n)
					}
				}
				if b.Used() > 1000+16*300 { // charges that are being refused
					t.Error("over the limit")
				}
				a.Close()
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 {
		t.Errorf("used %d", b.Used())
	}
}

// TestPromisesReserveLittle: what is charged follows the bytes that arrive.
func TestPromisesReserveLittle(t *testing.T) {
	b := New(1 << 40)
	for _, tt := range []struct{ promised, sent, most int64 }{
		{10 << 30, 0, 1 << 20}, {10 << 30, 3 << 20, 4 << 20}, {-1, 0, 4 << 10}, {100, 100, 101}, {5 << 20, 5 << 20, 5<<20 + 1}, {-1, 5000, 8 << 10},
	} {
		a := b.Open()
		buf, err := NewBuffer(a, tt.promised)
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte("x"), int(tt.sent))
		for rest := data; len(rest) > 0; {
			room, err := buf.Free()
			if err != nil {
				t.Fatal(err)
			}
			n := copy(room, rest)
			buf.Filled(n)
			rest = rest[n:]
		}
		if used := b.Used(); used > tt.most || !bytes.Equal(buf.Bytes(), data) {
			t.Errorf("promised %d, sent %d: %d charged", tt.promised, tt.sent, used)
		}
		buf.Refund()
		if b.Used() != 0 {
			t.Errorf("used %d", b.Used())
		}
		a.Close()
	}
}

func TestBufferStopsAtTheLimit(t *testing.T) {
	b := New(10 << 10)
	a := b.Open()
	defer a.Close()
	buf, err := NewBuffer(a, -1)
	for err == nil {
		var room []byte
		if room, err = buf.Free(); err == nil {
			buf.Filled(len(room))
		}
	}
	if wire.FaultOf(err).Kind != wire.QueueFull || b.Used() > 10<<10 {
		t.Errorf("%v, used %d", err, b.Used())
	}
	if _, err := NewBuffer(a, 1<<30); err == nil {
		t.Error("a megabyte fits into what is left of ten kilobytes")
	}
}

// TestScratchSizes: every size holds what it is chosen for, and wastes a quarter
// at most.
func TestScratchSizes(t *testing.T) {
	for class := range scratches {
		size := sizeOf(class)
		for _, n := range []int64{size, size - 1, size - size/8} {
			if got := classOf(n); got < 0 || sizeOf(got) < n || n > 1<<16 && sizeOf(got) > n+n/4+1 {
				t.Errorf("%d bytes: size %d, %d bytes", n, got, sizeOf(got))
			}
		}
		if class+1 < scratches && classOf(size+1) != class+1 {
			t.Errorf("%d bytes: size %d, want %d", size+1, classOf(size+1), class+1)
		}
	}
	if classOf(1) != 0 || classOf(0) != 0 || classOf(sizeOf(scratches-1)+1) != -1 {
		t.Error("the ends")
	}
}

// TestScratchBuffers hold what is put in, charge what they take, and are nobody
// else's until they are recycled.
func TestScratchBuffers(t *testing.T) {
	b := New(64 << 20)
	var kept [][]byte
	for i := range 20 {
		a := b.Open()
		want := bytes.Repeat([]byte{byte(i + 1)}, 100_000+i*137_000)
		promised := int64(len(want))
		if i%2 == 0 {
			promised = -1
		}
		buf, err := NewScratch(a, promised)
		if err != nil {
			t.Fatal(err)
		}
		for rest := want; len(rest) > 0; {
			room, err := buf.Free()
			if err != nil {
				t.Fatal(err)
			}
			n := copy(room, rest)
			buf.Filled(n)
			rest = rest[n:]
		}
		if !bytes.Equal(buf.Bytes(), want) {
			t.Fatalf("buffer %d holds something else", i)
		}
		if got := b.Used(); got != int64(cap(buf.Bytes())) {
			t.Errorf("%d bytes are charged for %d", got, cap(buf.Bytes()))
		}
		a.Close()
		if i%3 == 0 {
			Recycle(buf.Bytes())
			continue
		}
		kept = append(kept, buf.Bytes())
	}
	for _, k := range kept { // what was recycled meanwhile was not theirs
		if n := bytes.Count(k, k[:1]); n != len(k) {
			t.Errorf("%d bytes of %d are another's", len(k)-n, len(k))
		}
	}
}

// TestUsedScratchIsChargedLikeNew: where there is one, a large promise takes it at
// once, unless there is no room for it.
func TestUsedScratchIsChargedLikeNew(t *testing.T) {
	const promised = 5 << 20
	for _, limit := range []int64{64 << 20, 2 << 20} {
		for range 20 {
			Recycle(make([]byte, 0, sizeOf(classOf(promised+1))))
			b := New(limit)
			a := b.Open()
			buf, err := NewScratch(a, promised)
			if err != nil {
				t.Fatal(err)
			}
			room, err := buf.Free()
			if err != nil || len(room) == 0 || len(buf.Bytes()) != 0 {
				t.Fatalf("%d bytes of room, %v", len(room), err)
			}
			if used, held := b.Used(), int64(cap(buf.Bytes())); used != held || limit < held {
				t.Errorf("%d bytes are charged for %d", used, held)
			}
			a.Close()
		}
	}
}

// TestALowerLimitTakesNothingAway from who holds it.
func TestALowerLimitTakesNothingAway(t *testing.T) {
	b := New(100)
	a := b.Open()
	if err := a.Charge(80); err != nil {
		t.Fatal(err)
	}
	b.SetLimit(50)
	if err := a.Charge(1); err == nil || b.Used() != 80 {
		t.Errorf("%v, used %d", err, b.Used())
	}
	a.Refund(50)
	if err := a.Charge(20); err != nil || b.Used() != 50 {
		t.Errorf("%v, used %d", err, b.Used())
	}
	b.SetLimit(200)
	if err := a.Charge(150); err != nil || b.Used() != 200 {
		t.Errorf("%v, used %d", err, b.Used())
	}
	a.Close()
}
