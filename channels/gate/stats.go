package gate

import "sync/atomic"

// Stats counts what a [Gate] has done with the messages of an account since it started.
type Stats struct {
	Received atomic.Int64 // messages stored in the inbox
	Dropped  atomic.Int64 // messages dropped because the sender writes too fast or the inbox is full
	Refused  atomic.Int64 // messages from people who are not admitted
	Repeated atomic.Int64 // messages that were already in the inbox
	Skipped  atomic.Int64 // updates and messages that were skipped because the code panicked
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
