package router

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
