package whatsapp

// Adjust changes options. The channel must not use them at the same time.
func (c *Channel) Adjust(change func(*Options)) { change(&c.opts) }
