package agent

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// lookAtStatus makes the answer to /status.
func (d *Dispatcher) lookAtStatus(ctx context.Context, c *call) error {
	read := d.DB.Read(context.WithoutCancel(ctx))
	info, err := d.sessions.Info(read, c.key)
	if err != nil {
		return err
	}
	d.mu.Lock()
	mode, busy := d.mode(c.key), len(d.workers)
	d.mu.Unlock()
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "- %s: %s\n", what, fmt.Sprintf(format, args...))
	}
	line("Gateway", "%s %s, up %s", d.opts.Name, d.opts.Version,
		d.opts.Now().Sub(d.started).Truncate(time.Second))
	s := d.configOf(c.key)
	line("Model", "%s", s.ModelName)
	line("Tokens", "%d in (%d cached), %d out", info.Usage.Input, info.Usage.Cached, info.Usage.Output)
	if info.Cost > 0 {
		line("Cost", "$%.4f", info.Cost)
	}
	line("Context", "%d of %d tokens", info.Context, s.contextBudget())
	line("Queue", "%s, %d waiting", mode, len(c.waiting))
	line("Load", "%s busy, %d of %d model calls", count(busy, "conversation"),
		len(d.slots), cap(d.slots))
	for _, hand := range d.opts.Hands() {
		b.WriteString("- " + hand + "\n")
	}
	channels, err := d.opts.Channels(read)
	if err != nil {
		return err
	}
	for _, channel := range channels {
		line("Channel", "%s", channel)
	}
	c.looked = b.String()
	return nil
}
