package channels

import (
	"sync/atomic"
	"time"
)

// Stats count what a [Router] has done since it began.
type Stats struct {
	Sent      atomic.Int64 // messages
	Uncertain atomic.Int64 // tries whose outcome was never known
	Dead      atomic.Int64 // messages given up
	Bad       atomic.Int64 // rows that could not be read, of all accounts together only
}

// Stats returns the router's counters, of all accounts together.
func (r *Router) Stats() *Stats { return &r.stats }

// AccountStats returns the router's counters of one account. Of one that the router does not know
// nothing is ever counted.
func (r *Router) AccountStats(name string) *Stats {
	if a, ok := r.accounts[name]; ok {
		return &a.stats
	}
	return new(Stats)
}

// count lets add count for an account, and for all.
func (r *Router) count(account string, add func(*Stats)) {
	add(&r.stats)
	add(r.AccountStats(account))
}

// Beat returns when the router last looked after messages to send; zero before Run does.
func (r *Router) Beat() time.Time {
	if at := r.beat.Load(); at > 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// GateStats count what a [Gate] has done with the messages of an account since it began.
type GateStats struct {
	Received atomic.Int64 // messages that are in the inbox
	Dropped  atomic.Int64 // messages whose senders write too fast, or that find the inbox full
	Refused  atomic.Int64 // messages whose senders are not let in
	Repeated atomic.Int64 // messages that were in the inbox already
	Skipped  atomic.Int64 // updates that the channel's code could not stand
}

// Stats returns the gate's counters of an account.
func (g *Gate) Stats(account string) *GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.stats[account]
	if !ok {
		s = new(GateStats)
		g.stats[account] = s
	}
	return s
}
