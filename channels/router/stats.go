package router

import (
	"sync/atomic"
	"time"
)

// Stats counts what a [Router] has done since it started.
type Stats struct {
	Sent      atomic.Int64 // messages sent
	Uncertain atomic.Int64 // attempts whose outcome is unknown
	Dead      atomic.Int64 // messages given up
	Bad       atomic.Int64 // rows that could not be read; counted only for all accounts together
}

// Stats returns the router's counters, of all accounts together.
func (r *Router) Stats() *Stats { return &r.stats }

// AccountStats returns the router's counters of one account. For an unknown account they stay zero.
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

// LastRun returns when Run's loop last ran, or the zero time before Run.
func (r *Router) LastRun() time.Time {
	if at := r.lastRun.Load(); at > 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}
