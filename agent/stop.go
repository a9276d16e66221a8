package agent

import (
	"context"
	"fmt"
	"slices"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// pending returns the messages of a session that no turn has taken yet. Only the goroutine that
// hands messages out adds to them, so that for it they are all there are.
func (d *Dispatcher) pending(key session.Key) []bus.Received {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pendingLocked(key)
}

// pendingLocked is pending while d.mu is held.
func (d *Dispatcher) pendingLocked(key session.Key) []bus.Received {
	if p, ok := d.parked[key]; ok {
		return p.waiting
	}
	if w, ok := d.workers[key]; ok {
		return slices.Concat(w.taking, w.waiting)
	}
	return nil
}

// tasksOf returns the sessions of the sub-agents and jobs of a session. d.mu is held.
func (d *Dispatcher) tasksOf(key session.Key) (list []session.Key) {
	for k := range d.workers {
		if k.Below(key) {
			list = append(list, k)
		}
	}
	for k := range d.parked {
		if k.Below(key) {
			list = append(list, k)
		}
	}
	return list
}

// pendingRuns returns the messages that wait in sessions of their own for what a session has given
// to do: jobs, and what was posted to hooks.
func (d *Dispatcher) pendingRuns(key session.Key) (list []bus.Received) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.tasksOf(key) {
		if k.Unasked() {
			list = append(list, d.pendingLocked(k)...)
		}
	}
	return list
}

// stop answers /stop: in one transaction the running turn ends with what it has completed,
// and what waits is discarded. Nothing of either runs later.
func (d *Dispatcher) stop(c *call) (Say, error) {
	e, err := d.end(c)
	switch {
	case err != nil:
		return Say{}, err
	case e == ended{}:
		return Say{Text: "There is nothing to stop."}, nil
	}
	say := "Stopped"
	if e.tasks > 0 {
		say += ", with " + count(e.tasks, "sub-agent")
	}
	if e.jobs > 0 {
		say += ", with " + count(e.jobs, "job")
	}
	if e.discarded > 0 {
		say += ", and discarded " + count(e.discarded, "waiting message")
	}
	return Say{Text: say + "."}, nil
}

// reset answers /new: it stops what runs, and the next prompt begins with the next message.
func (d *Dispatcher) reset(c *call) (Say, error) {
	e, err := d.end(c)
	if err != nil {
		return Say{}, err
	}
	if err := d.archiveLater(c.tx, c.key); err != nil {
		return Say{}, err
	}
	stop := c.after
	c.after = func() {
		stop()
		d.ringChores()
	}
	if err := d.sessions.Reset(c.tx, c.key, d.opts.Now()); err != nil {
		return Say{}, err
	}
	say := "A new conversation begins."
	if e.discarded > 0 {
		say += fmt.Sprintf(" I have discarded %s.", count(e.discarded, "waiting message"))
	}
	return Say{Text: say}, nil
}

// An ended is what a person has ended.
type ended struct {
	turns     int // of the conversation: one or none
	tasks     int // of sub-agents, begun or not
	jobs      int // in sessions of their own, likewise
	discarded int // messages of people, and outcomes that they had not heard of
}

// end ends the running turn of the session and those of its sub-agents, and discards what waits
// there.
func (d *Dispatcher) end(c *call) (e ended, err error) {
	if err := d.discard(c, &e); err != nil {
		return e, err
	}
	turns, err := d.sessions.RunningTasks(c.tx, c.key)
	if err != nil {
		return e, err
	}
	for _, t := range turns {
		if t.Session.Unasked() {
			e.jobs++
		} else {
			e.tasks++
		}
	}
	t, err := d.sessions.RunningTurn(c.tx, c.key)
	if err != nil {
		return e, err
	}
	if t != nil {
		e.turns++
		turns = append(turns, *t)
	}
	for i := range turns {
		if err := d.endStopped(c, &turns[i]); err != nil {
			return e, err
		}
	}
	c.after = func() { d.cancelStopped(c.key) }
	return e, nil
}

// discard drops what waits: of people what has come before the command, but of tasks and their
// outcomes also what a turn or a sub-agent has written since, and nobody has handed out.
func (d *Dispatcher) discard(c *call, e *ended) error {
	outcomes, err := d.Inbox.Outcomes(c.tx, string(c.key))
	if err != nil {
		return err
	}
	tasks, err := d.Inbox.Tasks(c.tx, string(c.key))
	if err != nil {
		return err
	}
	list := slices.Concat(c.waiting, outcomes, d.pendingRuns(c.key))
	for _, task := range tasks {
		if task.Waiting {
			list = append(list, task.Received)
		}
	}
	for _, r := range list {
		ok, err := d.Inbox.Drop(c.tx, r.Seq)
		if err != nil {
			return err
		}
		switch note := r.Message.Note; {
		case !ok: // a turn has it, or it stands in the list twice
		case note == nil:
			e.discarded++
			c.stopped = append(c.stopped, r.Message.ID)
		case note.Kind == bus.Task:
			e.tasks++
		case isUnasked(r.Message):
			e.jobs++
			if err := d.stopRuns(c.tx, r); err != nil {
				return err
			}
		default:
			e.discarded++
		}
	}
	return nil
}

// cancelStopped ends what still works for a session whose turns have been ended.
func (d *Dispatcher) cancelStopped(key session.Key) {
	d.mu.Lock()
	delete(d.queued, key)
	for _, k := range append(d.tasksOf(key), key) {
		delete(d.parked, k)
		if w, ok := d.workers[k]; ok {
			w.waiting = nil
			if w.cancel != nil {
				w.cancel(errHalted)
			}
		}
	}
	d.mu.Unlock()
	d.opts.Stopped(string(key))
}

// StopTask ends the sub-agent that works in a session, and reports whether there was one.
func (d *Dispatcher) StopTask(ctx context.Context, key string) (stopped bool, err error) {
	task := session.Key(key)
	err = d.tx(ctx, func(tx *store.Tx) error {
		stopped = false
		list, err := d.Inbox.Tasks(tx, string(task.Parent()))
		for i := 0; i < len(list) && err == nil; i++ {
			if session.Of(list[i].Message) == task && list[i].Waiting {
				stopped, err = d.Inbox.Drop(tx, list[i].Seq)
			}
		}
		if err != nil {
			return err
		}
		t, err := d.sessions.RunningTurn(tx, task)
		if err != nil || t == nil {
			return err
		}
		stopped = true
		return d.endStopped(&call{tx: tx}, t)
	})
	if err == nil && stopped {
		d.cancelStopped(task)
	}
	return stopped, err
}

// endStopped ends t with a result for each of its tool calls. From now on its own writes are
// refused.
func (d *Dispatcher) endStopped(c *call, t *session.Turn) error {
	taken, err := d.Inbox.TakenBy(c.tx, t.ID)
	if err != nil {
		return err
	}
	for _, r := range taken {
		if r.Message.Note == nil {
			c.stopped = append(c.stopped, r.Message.ID)
		}
	}
	if err := d.stopRuns(c.tx, taken...); err != nil {
		return err
	}
	if err := d.questions.Void(c.tx, t.ID); err != nil {
		return err
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
