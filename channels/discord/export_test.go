package discord

// Missed returns the number of channels in which an event was lost, so that they must be read
// again.
func (c *Channel) Missed() int {
	c.missed.mu.Lock()
	defer c.missed.mu.Unlock()
	return len(c.missed.first)
}
