package whatsapp

import (
	"errors"
	"sync"
	"time"
)

// longestAck is the longest time that a message may take to be taken by WhatsApp, however often it
// was tried.
const longestAck = 30 * time.Second

// maxLate is how many messages are remembered that WhatsApp did not take in time.
const maxLate = 1024

// acks says how long to wait until WhatsApp has taken a message. All chats of an account wait
// meanwhile, because the client sends one message at a time. So a lost acknowledgement must not
// cost much: the first try has the time first, with which even bad connections get along. Each
// further try of the same message has twice the time of the one before, so that a slow connection
// gets through. A second try shows nothing twice, because it has the same id. The methods may be
// called concurrently.
type acks struct {
	first time.Duration

	mu   sync.Mutex
	late map[string]int // tries that were too late, by what was sent
}

func newAcks(first time.Duration) *acks {
	return &acks{first: first, late: make(map[string]int)}
}

// wait returns how long the next try of a message may take.
func (a *acks) wait(key string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := a.first << min(a.late[key], 10)
	return min(wait, max(a.first, longestAck))
}

// tried notes what became of a try of a message.
func (a *acks) tried(key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		delete(a.late, key)
	case errors.Is(err, errLate):
		if len(a.late) >= maxLate {
			clear(a.late)
		}
		a.late[key]++
	}
}
