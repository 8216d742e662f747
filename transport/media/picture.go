package media

import "github.com/llm-coordinator/coordinator/transport/budget"

// picture is an image that has been downloaded. It is in memory once, however many
// requests have it, and is charged to them together: to an account that is open
// while any of them does. What is kept for later requests is not charged, for
// the cache has a limit of its own. It is guarded by the flights' lock.
type picture struct {
	uri     []byte // see [Fetcher.Fetch]
	account *budget.Account
	holders int
}

// newPicture makes one of what was charged, as it arrived, to an account.
func newPicture(uri []byte, account *budget.Account, holders int) *picture {
	pic := &picture{uri: uri, account: account, holders: holders}
	if holders == 0 {
		pic.release()
	}
	return pic
}

// hold adds a holder. The first has to have room for the image: else the error
// is a fault of kind QueueFull.
func (pic *picture) hold(memory *budget.Budget) error {
	if pic.holders == 0 {
		account := memory.Open()
		if err := account.Charge(int64(cap(pic.uri))); err != nil {
			return err
		}
		pic.account = account
	}
	pic.holders++
	return nil
}

// drop takes a holder away.
func (pic *picture) drop() {
	if pic.holders--; pic.holders == 0 {
		pic.release()
	}
}

func (pic *picture) release() {
	pic.account.Close()
	pic.account = nil
}
