package whatsapp

import "time"

// SetConnectWait changes Options.ConnectWait. It must not be called while a message is sent.
func (c *Channel) SetConnectWait(d time.Duration) { c.opts.ConnectWait = d }
