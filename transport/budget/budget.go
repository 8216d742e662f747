// Package budget bounds the bytes that requests hold in memory: their bodies,
// their images and their rendered tensors. What is large is charged before it is
// allocated, and a request that would go over the limit is refused.
package budget

import (
	"sync"
	"sync/atomic"

	"github.com/llm-coordinator/coordinator/transport/wire"
)

// Budget is what all requests together may hold. It may be used by many
// goroutines. A nil Budget has no limit and counts nothing.
type Budget struct {
	limit   atomic.Int64
	used    atomic.Int64
	refused atomic.Int64
}

// New makes a budget of so many bytes.
func New(limit int64) *Budget {
	b := &Budget{}
	b.SetLimit(limit)
	return b
}

// SetLimit changes how many bytes may be held. What is held already stays.
func (b *Budget) SetLimit(limit int64) { b.limit.Store(limit) }

// Used returns the bytes that are charged now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused returns how many charges were refused to those who need them.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// Open opens the account of one request.
func (b *Budget) Open() *Account { return &Account{budget: b} }

// Beside opens another account of the same budget: for what is held for as long as
// something else.
func (a *Account) Beside() *Account {
	if a == nil || a.budget == nil {
		return nil
	}
	return a.budget.Open()
}

// Account is what one request holds. It may be used by many goroutines. A nil
// Account charges nothing.
type Account struct {
	budget *Budget
	mu     sync.Mutex
	held   int64
	closed bool
	keeps  int // those who need what is charged though the account is closed
}

// Charge takes n bytes out of the budget, or none and returns a fault of kind
// QueueFull. After Close it refuses.
func (a *Account) Charge(n int64) error {
	if a.TryCharge(n) {
		return nil
	}
	a.budget.refused.Add(1)
	f := wire.Faultf(wire.QueueFull, "too many bytes in flight")
	f.RetryAfter = "1"
	return f
}

// TryCharge is Charge for those who can do without: it reports whether it took the
// bytes, and no refusal is counted.
func (a *Account) TryCharge(n int64) bool {
	if a == nil || a.budget == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch b := a.budget; {
	case a.closed:
		return false
	case b.used.Add(n) > b.limit.Load():
		b.used.Add(-n)
		return false
	}
	a.held += n
	return true
}

// Refund gives back n bytes that were charged.
func (a *Account) Refund(n int64) {
	if a == nil || a.budget == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held > 0 {
		a.held -= n
		a.budget.used.Add(-n)
	}
}

// Keep has what is charged stay charged until done is called, though the account
// is closed before: for what outlives its request. done may be called more than
// once.
func (a *Account) Keep() (done func()) {
	if a == nil || a.budget == nil {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keeps++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.keeps--
		a.settle()
	})
}

// Empty gives back what is charged, unless somebody keeps it: the request goes on
// without it.
func (a *Account) Empty() {
	if a == nil || a.budget == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keeps == 0 {
		a.budget.used.Add(-a.held)
		a.held = 0
	}
}

// settle gives back what is left of an account that is closed and not kept. The
// lock is held.
func (a *Account) settle() {
	if a.closed && a.keeps == 0 {
		a.budget.used.Add(-a.held)
		a.held = 0
	}
}

// Close gives back what is left, once nobody keeps it. Later calls do nothing.
func (a *Account) Close() {
	if a == nil || a.budget == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.settle()
}

// Buffer is a buffer that grows as bytes arrive and charges what it allocates.
// It belongs to one goroutine.
type Buffer struct {
	account *Account
	most    int64 // that it is ever to hold, or -1
	scratch bool
	buf     []byte
}

// ahead is what a promised length may reserve before its bytes are there.
const ahead = 1 << 20

// NewBuffer makes a buffer for what is promised to be so long (-1: nothing is
// promised). A promise reserves at most a megabyte.
func NewBuffer(a *Account, promised int64) (*Buffer, error) {
	return newBuffer(&Buffer{account: a, most: promised}, promised)
}

// NewScratch is NewBuffer for bytes that are not kept: they are to be given to
// Recycle.
func NewScratch(a *Account, promised int64) (*Buffer, error) {
	b := &Buffer{account: a, most: promised, scratch: true}
	// A large promise is believed where it costs no new memory.
	if class := classOf(promised + 1); promised >= ahead && class >= 0 {
		if used := usedScratch(class); used != nil {
			if a.TryCharge(int64(cap(used))) {
				b.buf = used
				return b, nil
			}
			Recycle(used)
		}
	}
	return newBuffer(b, promised)
}

func newBuffer(b *Buffer, promised int64) (*Buffer, error) {
	size := int64(4 << 10)
	if promised >= 0 {
		size = min(promised+1, ahead) // one more, so that the end is seen without growing
	}
	return b, b.grow(size)
}

func (b *Buffer) grow(size int64) error {
	if b.scratch {
		if class := classOf(size); class >= 0 {
			size = sizeOf(class)
		}
	}
	if err := b.account.Charge(size - int64(cap(b.buf))); err != nil {
		return err
	}
	if !b.scratch {
		b.buf = append(make([]byte, 0, size), b.buf...)
		return nil
	}
	old := b.buf
	b.buf = append(takeScratch(size), old...)
	if old != nil {
		Recycle(old)
	}
	return nil
}

// Free returns room for more bytes, at least one. An error is a fault of kind
// QueueFull.
func (b *Buffer) Free() ([]byte, error) {
	if len(b.buf) == cap(b.buf) {
		size := 2 * int64(cap(b.buf))
		if exact := b.most + 1; int64(cap(b.buf)) < exact && exact < size {
			size = exact
		}
		if err := b.grow(size); err != nil {
			return nil, err
		}
	}
	return b.buf[len(b.buf):cap(b.buf)], nil
}

// Filled adds the first n bytes of the room that Free returned.
func (b *Buffer) Filled(n int) { b.buf = b.buf[:len(b.buf)+n] }

// Bytes returns what has been filled.
func (b *Buffer) Bytes() []byte { return b.buf }

// Refund gives back what the buffer has charged: its bytes are not kept.
func (b *Buffer) Refund() { b.account.Refund(int64(cap(b.buf))) }
