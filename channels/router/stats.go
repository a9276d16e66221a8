package router

import (
	"sync/atomic"
	"time"
)

// Stats count what a [Router] has done since it began.
type Stats struct {
	Sent      atomic.Int64 // messages
	Uncertain atomic.Int64 // tries whose outcome remained unknown
	Dead      atomic.Int64 // messages given up
	Bad       atomic.Int64 // rows that could not be read; counted for all accounts together only
}

// Stats returns the router's counters, of all accounts together.
func (r *Router) Stats() *Stats { return &r.stats }

// AccountStats returns the router's counters of one account. Those of an unknown account stay zero.
func (r *Router) AccountStats(name string) *Stats {
	if a, ok := r.accounts[name]; ok {
		return &a.stats
	}
	return new(Stats)
}

// count calls add with the counters of an account and with those of all accounts.
func (r *Router) count(account string, add func(*Stats)) {
	add(&r.stats)
	add(r.AccountStats(account))
}

// LastRun returns when the loop of Run last went round; zero before Run.
func (r *Router) LastRun() time.Time {
	if at := r.lastRun.Load(); at > 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}
