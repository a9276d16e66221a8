package discord

// Missed returns of how many channels an event was lost that is to be read again.
func (c *Channel) Missed() int {
	c.missed.mu.Lock()
	defer c.missed.mu.Unlock()
	return len(c.missed.first)
}
