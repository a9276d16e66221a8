package gate

import "sync/atomic"

// Stats count what a [Gate] has done with the messages of an account since it began.
type Stats struct {
	Received atomic.Int64 // messages that are in the inbox
	Dropped  atomic.Int64 // messages whose senders write too fast, or that find the inbox full
	Refused  atomic.Int64 // messages whose senders are not let in
	Repeated atomic.Int64 // messages that were in the inbox already
	Skipped  atomic.Int64 // updates on which the channel's code panicked
}

// Stats returns the gate's counters of an account.
func (g *Gate) Stats(account string) *Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.stats[account]
	if !ok {
		s = new(Stats)
		g.stats[account] = s
	}
	return s
}
