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

// below returns the sessions that work for a session: those of its sub-agents and, if jobs is set,
// those of jobs and hooks. d.mu is held.
func (d *Dispatcher) below(key session.Key, jobs bool) (list []session.Key) {
	wanted := func(k session.Key) bool {
		return k.Below(key) && (jobs || k.Background() == key.Background())
	}
	for k := range d.workers {
		if wanted(k) {
			list = append(list, k)
		}
	}
	for k := range d.parked {
		if wanted(k) {
			list = append(list, k)
		}
	}
	return list
}

// work is what memory knows of the work for a session.
type work struct {
	jobs     []session.Key  // sessions of jobs and hooks that work for it, which may have sub-agents
	theirs   []bus.Received // what waits in these
	waiting  []bus.Received // what waits in the session itself
	becoming []bus.Received // the batch that becomes a turn now
}

// lookAtWork finds out what works for the conversation. While the command is under way nothing is
// handed out that belongs to it, and what a turn takes before the transaction can't be dropped.
func (d *Dispatcher) lookAtWork(_ context.Context, c *call) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.below(c.key, true) {
		if k.Proactive() {
			c.work.jobs = append(c.work.jobs, k)
			c.work.theirs = append(c.work.theirs, d.pendingLocked(k)...)
		}
	}
	if p, ok := d.parked[c.key]; ok {
		c.work.waiting = slices.Clone(p.waiting)
	} else if w, ok := d.workers[c.key]; ok {
		c.work.waiting, c.work.becoming = slices.Clone(w.waiting), slices.Clone(w.taking)
	}
	return nil
}

// stop answers /stop: in one transaction the running turn ends with what it has completed,
// and what waits is discarded. Nothing of either runs later.
func (d *Dispatcher) stop(c *call) (Say, error) {
	if !c.message.Role.AtLeast(bus.User) {
		return d.stopOwn(c)
	}
	e, err := d.end(c, true)
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
	c.again = true            // nobody has stopped a reminder by that
	e, err := d.end(c, false) // what is done in the background is no part of the conversation
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
// there; with jobs also those of the jobs and hooks that work in the background.
func (d *Dispatcher) end(c *call, jobs bool) (e ended, err error) {
	if err := d.discard(c, &e, jobs); err != nil {
		return e, err
	}
	turns, err := d.sessions.RunningTasks(c.tx, c.key)
	if err != nil {
		return e, err
	}
	turns = slices.DeleteFunc(turns, func(t session.Turn) bool {
		return !jobs && t.Session.Background()
	})
	for _, t := range turns {
		if t.Session.Proactive() {
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
	c.after = func() { d.cancelStopped(c.key, jobs, &c.message) }
	return e, nil
}

// discard drops what waits: of people what has come before the command, but of tasks and their
// outcomes also what a turn or a sub-agent has written since, and nobody has handed out. A reminder
// that waits for the turn that is ended comes after it.
func (d *Dispatcher) discard(c *call, e *ended, jobs bool) error {
	parents := []session.Key{c.key}
	list := slices.DeleteFunc(slices.Clone(c.waiting), isKept)
	if jobs {
		parents = append(parents, c.work.jobs...)
		list = append(list, c.work.theirs...)
	}
	for _, parent := range parents {
		outcomes, err := d.Inbox.Outcomes(c.tx, string(parent))
		if err != nil {
			return err
		}
		list = append(list, outcomes...)
		tasks, err := d.Inbox.Tasks(c.tx, string(parent))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if task.Waiting {
				list = append(list, task.Received)
			}
		}
	}
	for _, r := range list {
		ok, err := d.Inbox.Drop(c.tx, r.Seq)
		if err != nil {
			return err
		}
		switch origin := r.Message.Origin; {
		case !ok: // a turn has it, or it stands in the list twice
		case origin.Kind == bus.Person:
			e.discarded++
			c.stopped = append(c.stopped, r.Message.ID)
		case origin.Kind == bus.Task:
			e.tasks++
		case origin.Standalone():
			e.jobs++
			if err := d.stopRuns(c, r); err != nil {
				return err
			}
		default:
			e.discarded++
		}
	}
	return nil
}

// isKept reports whether r, which waits for the turn that is ended, is answered all the same: it
// begins a turn by itself.
func isKept(r bus.Received) bool { return r.Message.Origin.Standalone() }

// cancelStopped ends what still works for a session whose turns have been ended, and, with jobs, in
// the background. by is the message that has ended them; nil if no person has.
func (d *Dispatcher) cancelStopped(key session.Key, jobs bool, by *bus.InboundMessage) {
	d.mu.Lock()
	for _, k := range append(d.below(key, jobs), key) {
		gone := func(r bus.Received) bool { return k != key || !isKept(r) }
		delete(d.queued, k)
		if p, ok := d.parked[k]; ok && k.Parent() == "" {
			p.waiting = slices.DeleteFunc(slices.Clone(p.waiting), gone)
			d.due(k) // what is kept gets a worker
		} else {
			delete(d.parked, k)
		}
		if w, ok := d.workers[k]; ok {
			w.waiting = slices.DeleteFunc(w.waiting, gone)
			if w.cancel != nil {
				w.cancel(errHalted)
			}
		}
	}
	d.mu.Unlock()
	d.opts.Stopped(string(key), by)
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
		d.cancelStopped(task, true, nil)
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
		if r.Message.Origin.Kind == bus.Person {
			c.stopped = append(c.stopped, r.Message.ID)
		}
	}
	c.streams = append(c.streams, streamOf(t))
	if err := d.stopRuns(c, taken...); err != nil {
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
