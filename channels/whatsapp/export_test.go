package whatsapp

import "time"

// SetConnectWait changes Options.ConnectWait. Nothing may be sent at the same time.
func (c *Channel) SetConnectWait(d time.Duration) { c.opts.ConnectWait = d }
