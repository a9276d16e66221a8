package agent

import (
	"time"

	"gateway/session"
)

// Stats describes the current and past work of a [Dispatcher].
type Stats struct {
	Beat      time.Time        // when it last checked for new messages; zero before the first check
	Slots     int              // maximum number of concurrent model calls
	Used      int              // current number of model calls
	Busy      int              // sessions with a worker
	Suspended int              // sessions with a suspended turn
	Panics    int64            // turns that panicked
	Abandoned int64            // tool calls that ignored the end of their context
	Dropped   map[string]int64 // messages for which there was no room, by account
}

// Stats returns the current Stats.
func (d *Dispatcher) Stats() Stats {
	s := Stats{Beat: d.pool.LastBeat(), Slots: cap(d.env.Calls.Slots), Used: len(d.env.Calls.Slots),
		Panics:    d.env.Counters.Panics.Load() + d.background.Panics(),
		Abandoned: d.env.Counters.Abandoned.Load(),
		Dropped:   d.overflow.Counts()}
	n := d.pool.Counts()
	s.Busy, s.Suspended = n.Workers, n.Suspended
	return s
}

// Serves reports whether somebody works on a session, or it has a valid reason to wait: see
// [pool.Pool.Serves].
func (d *Dispatcher) Serves(key session.Key) bool { return d.pool.Serves(key) }
