package bus

import (
	"sync"
	"time"
)

// A Progress is the current text of an unfinished answer. It may be lost.
type Progress struct {
	To      Address
	Stream  string    // as in the OutboundMessage that will replace it
	ReplyTo string    // as in the OutboundMessage that will replace it
	Text    string    // the whole answer so far, as Markdown
	Status  string    // what the agent is doing, in one line or in several of Markdown, or ""
	Since   time.Time // with Status: since when; zero: unknown
	Ended   bool      // only the OutboundMessage of this stream follows
	Void    bool      // with Ended: not even the OutboundMessage follows; the answer was stopped
	Waits   bool      // with Void: it was not stopped, but waits for somebody and may grow later
}

// Live passes on the newest [Progress] of each stream. Publish never waits: it replaces the
// progress of a stream that the reader has not received yet.
type Live struct {
	wake Signal

	mu     sync.Mutex
	newest map[string]int // index in queue, by stream
	queue  []Progress
}

// NewLive returns a Live.
func NewLive() *Live { return &Live{wake: NewSignal(), newest: make(map[string]int)} }

// Publish passes p on.
func (l *Live) Publish(p Progress) {
	l.mu.Lock()
	if i, ok := l.newest[p.Stream]; ok {
		l.queue[i] = p
	} else {
		l.newest[p.Stream] = len(l.queue)
		l.queue = append(l.queue, p)
	}
	l.mu.Unlock()
	l.wake.Ring()
}

// C receives a value after [Live.Publish]. It supports one reader and is never closed.
func (l *Live) C() <-chan struct{} { return l.wake }

// Drain returns the progress that was published since the last call, in the order in which the
// streams began.
func (l *Live) Drain() []Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.queue
	l.queue = nil
	clear(l.newest)
	return taken
}
