package agent

import (
	"slices"

	"gateway/bus"
	"gateway/session"
)

// stopOwn answers the /stop of a guest: it ends the running turn only if nobody else has written to
// it, and discards only what the guest has sent.
func (d *Dispatcher) stopOwn(c *call) (Say, error) {
	own := func(r bus.Received) bool {
		m := r.Message
		return m.Origin.Kind == bus.Person && m.Sender.ID == c.message.Sender.ID
	}
	all := func(list []bus.Received) bool {
		return len(list) > 0 && !slices.ContainsFunc(list, func(r bus.Received) bool { return !own(r) })
	}
	t, err := d.sessions.RunningTurn(c.tx, c.key)
	if err != nil {
		return Say{}, err
	}
	dropped := c.work.waitingOwn(t == nil, own, all)
	for i, r := range dropped {
		ok, err := d.Inbox.Drop(c.tx, r.Seq)
		if err != nil {
			return Say{}, err
		}
		if !ok { // a turn has it by now
			dropped[i].Seq = 0
			continue
		}
		c.stopped = append(c.stopped, r.Message.ID)
	}
	dropped = slices.DeleteFunc(dropped, func(r bus.Received) bool { return r.Seq == 0 })
	ends := false
	if t != nil {
		taken, err := d.Inbox.TakenBy(c.tx, t.ID)
		if err != nil {
			return Say{}, err
		}
		if ends = all(taken); ends {
			if err := d.endStopped(c, t); err != nil {
				return Say{}, err
			}
		}
	}
	c.after = func() { d.cancelOwn(c.key, dropped, ends) }
	return Say{Text: sayStoppedOwn(len(dropped), ends, t != nil)}, nil
}

func sayStoppedOwn(dropped int, ends, running bool) string {
	say := "There is nothing of yours to stop."
	switch {
	case ends && dropped > 0:
		return "Stopped, and discarded " + count(dropped, "waiting message") + "."
	case ends:
		return "Stopped."
	case dropped > 0:
		say = "I have discarded " + count(dropped, "waiting message") + " of yours."
	}
	if running {
		say += " The answer under way is not only yours: a user of this gateway can stop it."
	}
	return say
}

// waitingOwn returns what waits in a session and is own. A batch that is being taken becomes a turn
// as a whole: it counts if all of it is own, and no turn runs that it would steer.
func (w *work) waitingOwn(
	idle bool, own func(bus.Received) bool, all func([]bus.Received) bool,
) (list []bus.Received) {
	if idle && all(w.becoming) {
		list = append(list, w.becoming...)
	}
	for _, r := range w.waiting {
		if own(r) {
			list = append(list, r)
		}
	}
	return list
}

// cancelOwn forgets what was dropped, and ends the worker's turn if it has ended.
func (d *Dispatcher) cancelOwn(key session.Key, dropped []bus.Received, ends bool) {
	gone := func(r bus.Received) bool {
		return slices.ContainsFunc(dropped, func(x bus.Received) bool { return x.Seq == r.Seq })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.parked[key]; ok {
		p.waiting = slices.DeleteFunc(slices.Clone(p.waiting), gone)
		if ends {
			d.due(key)
		}
	}
	if w, ok := d.workers[key]; ok {
		w.waiting = slices.DeleteFunc(slices.Clone(w.waiting), gone)
		if ends && w.cancel != nil {
			w.cancel(errHalted)
		}
	}
}
