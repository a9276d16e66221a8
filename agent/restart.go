package agent

import (
	"context"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/store"
)

// A Restart begins the gateway anew, for /restart.
type Restart struct {
	// Check returns why the gateway would not come back, in a sentence for people, or "". It may
	// take a while.
	Check func() string

	// Begin has the gateway end as it does on a signal, and start again. It returns at once, and may
	// be called again.
	Begin func()
}

const (
	sayRestarting = "I am restarting. What I am working on goes on then, and I tell you here when I " +
		"am back."
	sayNoRestart = "I can't start myself again on this system. Who runs me has to do it."
)

// lookAtRestart finds out whether the gateway would come back.
func (d *Dispatcher) lookAtRestart(_ context.Context, c *call) error {
	if d.opts.Restart == nil {
		c.looked = sayNoRestart
	} else if why := d.opts.Restart.Check(); why != "" {
		c.looked = why + " I go on as I am."
	}
	return nil
}

// restart answers /restart. That it was asked for is noted with the answer: a restart finds the
// command done, and can't lead to another one.
func (d *Dispatcher) restart(c *call) (Say, error) {
	if c.looked != "" {
		return Say{Text: c.looked}, nil
	}
	c.after = d.opts.Restart.Begin
	return Say{Text: sayRestarting}, d.restarts.Ask(c.tx, c.message.From, d.opts.Now())
}

// sayBack tells those who have asked for a restart that it is over.
func (d *Dispatcher) sayBack(ctx context.Context) error {
	return d.tx(ctx, func(tx *store.Tx) error {
		list, err := d.restarts.Take(tx)
		now := d.opts.Now()
		for i := 0; i < len(list) && err == nil; i++ {
			took := max(now.Sub(list[i].Asked), 0) // the clock may have been put back
			text := fmt.Sprintf("I am back: %s %s, after %s.", d.opts.Name, d.opts.Version,
				took.Round(time.Second))
			err = d.Outbox.Put(tx, bus.OutboundMessage{To: list[i].To, Text: text}, now)
		}
		return err
	})
}
