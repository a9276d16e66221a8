package bus

import "sync"

// A Progress shows an answer that is not final yet. It may be lost.
type Progress struct {
	To      Address
	Stream  string // as in the OutboundMessage that will replace it
	ReplyTo string // as in the OutboundMessage that will replace it
	Text    string // all of the answer so far, Markdown
	Status  string // what is being done, one line, or ""
	Ended   bool   // nothing more will come of this stream but its OutboundMessage
	Void    bool   // with Ended: and no OutboundMessage either, it was stopped
}

// Live passes on the newest [Progress] of each stream. Publishing never waits: what the reader
// has not taken yet of a stream is replaced.
type Live struct {
	wake signal

	mu     sync.Mutex
	newest map[string]int // index in queue, by stream
	queue  []Progress
}

// NewLive returns a Live.
func NewLive() *Live { return &Live{wake: newSignal(), newest: make(map[string]int)} }

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
	l.wake.ring()
}

// C receives after Publish. It has one reader and is never closed.
func (l *Live) C() <-chan struct{} { return l.wake }

// Drain returns what was published since the last call, in the order in which the streams began.
func (l *Live) Drain() []Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.queue
	l.queue = nil
	clear(l.newest)
	return taken
}
