package agent

import (
	"fmt"
	"slices"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
)

// pending returns the messages of a session that no turn has taken yet. Only the goroutine that
// hands messages out adds to them, so that for it they are all there are.
func (d *Dispatcher) pending(key session.Key) []bus.Received {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, ok := d.workers[key]
	if !ok {
		return nil
	}
	return slices.Concat(w.taking, w.waiting)
}

// stop answers /stop: in one transaction the running turn ends with what it has completed,
// and what waits is discarded. Nothing of either runs later.
func (d *Dispatcher) stop(c *call) (Say, error) {
	stopped, discarded, err := d.halt(c)
	switch {
	case err != nil:
		return Say{}, err
	case !stopped && discarded == 0:
		return Say{Text: "There is nothing to stop."}, nil
	case discarded == 0:
		return Say{Text: "Stopped."}, nil
	}
	return Say{Text: fmt.Sprintf("Stopped, and discarded %s.",
		count(discarded, "waiting message"))}, nil
}

// reset answers /new: it stops what runs, and the next prompt begins with the next message.
func (d *Dispatcher) reset(c *call) (Say, error) {
	_, discarded, err := d.halt(c)
	if err != nil {
		return Say{}, err
	}
	if err := d.sessions.Reset(c.tx, c.key, d.opts.Now()); err != nil {
		return Say{}, err
	}
	say := "A new conversation begins."
	if discarded > 0 {
		say += fmt.Sprintf(" I have discarded %s.", count(discarded, "waiting message"))
	}
	return Say{Text: say}, nil
}

// halt ends the running turn of the session and discards what waits there.
func (d *Dispatcher) halt(c *call) (stopped bool, discarded int, err error) {
	for _, r := range c.waiting {
		ok, err := d.Inbox.Drop(c.tx, r.Seq)
		if err != nil {
			return false, 0, err
		}
		if ok {
			discarded++
			c.stopped = append(c.stopped, r.Message.ID)
		}
	}
	t, err := d.sessions.RunningTurn(c.tx, c.key)
	if err != nil {
		return false, 0, err
	}
	if t != nil {
		if err := d.endStopped(c, t); err != nil {
			return false, 0, err
		}
	}
	c.after = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		w, ok := d.workers[c.key]
		if !ok {
			return
		}
		w.waiting = nil
		if w.cancel != nil {
			w.cancel(errHalted)
		}
	}
	return t != nil, discarded, nil
}

// endStopped ends t with a result for each of its tool calls. From now on its own writes are
// refused.
func (d *Dispatcher) endStopped(c *call, t *session.Turn) error {
	taken, err := d.Inbox.TakenBy(c.tx, t.ID)
	if err != nil {
		return err
	}
	for _, r := range taken {
		c.stopped = append(c.stopped, r.Message.ID)
	}
	messages, err := d.sessions.TurnMessages(c.tx, t)
	if err != nil {
		return err
	}
	last := append(closeCalls(messages, resultStopped),
		llm.Message{Role: llm.Assistant, Text: markStopped})
	if err := d.sessions.End(c.tx, t, session.Stopped, d.opts.Now(), last...); err != nil {
		return err
	}
	return d.Inbox.Finish(c.tx, t.ID)
}

func count(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
