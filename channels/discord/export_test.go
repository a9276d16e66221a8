package discord

import "time"

// Missed returns the number of channels in which an event was lost, so that they must be read
// again.
func (c *Channel) Missed() int {
	c.missed.mu.Lock()
	defer c.missed.mu.Unlock()
	return len(c.missed.first)
}

// StartWait returns how long to wait before n sessions begin.
func StartWait(total, remaining int, reset time.Duration, n int) time.Duration {
	l := startLimit{total, remaining, reset.Milliseconds()}
	return l.wait(n)
}
