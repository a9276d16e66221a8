package whatsapp

import (
	"errors"
	"time"

	"gateway/channels/recent"
)

// longestAck is the longest time to wait for WhatsApp to accept a message, after any number of
// attempts.
const longestAck = 30 * time.Second

// maxLate is the maximum number of remembered messages that WhatsApp did not accept in time.
// Forgetting a message only shortens the wait for its next attempt.
const maxLate = 1024

// acks determines how long to wait until WhatsApp has accepted a message. The client sends one
// message at a time, so all chats of an account wait meanwhile, and a lost acknowledgement must not
// cost much. The first attempt gets the time first, which is enough even on bad connections. Each
// further attempt at the same message gets twice the time of the one before, so that a slow
// connection succeeds. A repeated message has the same id and is shown only once. The methods are
// safe for concurrent use.
type acks struct {
	first time.Duration            // for the first attempt
	late  *recent.Map[string, int] // number of late attempts, by message key
}

func newAcks(first time.Duration) *acks {
	return &acks{first: first, late: recent.New[string, int](maxLate)}
}

// wait returns the time limit of the next attempt at a message.
func (a *acks) wait(key string) time.Duration {
	late, _ := a.late.Get(key)
	// More than ten doublings exceed longestAck anyway, and could overflow.
	wait := a.first << min(late, 10)
	return min(wait, max(a.first, longestAck))
}

// record records the result of an attempt at a message.
func (a *acks) record(key string, err error) {
	switch {
	case err == nil:
		a.late.Delete(key)
	case errors.Is(err, errLate):
		recent.Count(a.late, key)
	}
}
