package whatsapp

import (
	"fmt"
	"time"
)

// SetConnectWait changes Options.ConnectWait. It must not be called while a message is sent.
func (c *Channel) SetConnectWait(d time.Duration) { c.opts.ConnectWait = d }

// LimitStore makes the store of a running channel full, or gives it room again.
func (c *Channel) LimitStore(full bool) error {
	pages := 1 << 30
	if full {
		pages = 1 // SQLite takes the current number instead
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	_, err := c.store.open.st.db.Exec(fmt.Sprintf("PRAGMA max_page_count=%d", pages))
	return err
}
