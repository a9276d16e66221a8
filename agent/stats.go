package agent

import "time"

// Stats say what a [Dispatcher] does just now, and has done since it began.
type Stats struct {
	Beat      time.Time        // when it last looked after new messages; zero before it does at all
	Slots     int              // model calls that are made at once, at most
	Used      int              // of them, now
	Busy      int              // sessions in which it works
	Suspended int              // sessions whose turn waits for somebody
	Panics    int64            // turns that were ended by a bug
	Abandoned int64            // tool calls that go on though they were to end
	Dropped   map[string]int64 // messages for which there was no room, by account
}

// Stats returns what d does and has done.
func (d *Dispatcher) Stats() Stats {
	s := Stats{Beat: d.LastBeat(), Slots: cap(d.env.Calls.Slots), Used: len(d.env.Calls.Slots),
		Panics:    d.env.Counters.Panics.Load() + d.background.Panics(),
		Abandoned: d.env.Counters.Abandoned.Load(),
		Dropped:   d.overflow.Counts()}
	n := d.Counts()
	s.Busy, s.Suspended = n.Workers, n.Suspended
	return s
}
