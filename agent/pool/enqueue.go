package pool

import (
	"context"

	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
)

// Enqueue gives r to the worker of its session and starts one if necessary. full reports that the
// session already has bound waiting messages, so Enqueue has not accepted r. tell reports whether
// the caller must tell the sender; it is true only for the first such message.
func (pl *Pool) Enqueue(
	ctx, work context.Context, r bus.Received, bound int,
) (full, tell bool, err error) {
	a := arrival{Pool: pl, r: r, bound: bound, person: r.Message.Origin.Kind == bus.Person}
	full, tell, due := a.enqueue(work)
	return full, tell, review{pl}.all(ctx, work, due)
}

// An arrival is a message that [Pool.Enqueue] gives to its session. The results full and tell of
// its methods are those of Enqueue.
type arrival struct {
	*Pool
	r         bus.Received
	bound     int
	person    bool // a person has written r
	forBefore bool // r decides a question from before its group moved
}

// enqueue gives r to its session. Afterwards the caller must review the suspended sessions in due,
// in order: r may decide their questions.
func (a *arrival) enqueue(work context.Context) (full, tell bool, due []session.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, before := session.Of(a.r.Message), session.Before(a.r.Message)
	a.forBefore = decidesBefore(a.Pool, a.r)
	if a.suspended[before] != nil {
		a.markDue(before)
	}
	p, suspended := a.suspended[key]
	if w := a.workers[key]; suspended || w != nil && w.isBehind() {
		key = beside(key, &a.r.Message.Origin)
		p, suspended = a.suspended[key]
	}
	if suspended {
		return a.addToSuspended(key, p)
	}
	if w, ok := a.workers[key]; ok {
		full, tell = a.addToWorker(work, w)
		return full, tell, nil
	}
	if !a.mustWait(key, a.r) {
		a.start(work, key, &worker{waiting: []bus.Received{a.r}, arrived: a.env.Now()})
	}
	return false, false, nil
}

// addToSuspended gives r to the suspended turn p of the session key. due is as in enqueue. The
// pool's mu is held.
func (a *arrival) addToSuspended(
	key session.Key, p *suspendedTurn,
) (full, tell bool, due []session.Key) {
	answers := decides(&p.question, a.r)
	if !a.person && !answers && isFull(p.waiting, &p.deferred) {
		return false, false, nil
	}
	if len(p.waiting) >= a.bound && a.person && !a.forBefore && !answers {
		tell = !p.fullNotified
		p.fullNotified = true
		return true, tell, nil
	}
	p.waiting, p.fullNotified = append(p.waiting, a.r), false
	before := session.Before(a.r.Message)
	if a.forBefore && a.suspended[before].question.ID > p.question.ID {
		return false, false, []session.Key{before, key} // r answers the newer question
	}
	return false, false, []session.Key{key}
}

// addToWorker gives r to w, and interrupts the turn of w in queue mode interrupt. The pool's mu is
// held.
func (a *arrival) addToWorker(work context.Context, w *worker) (full, tell bool) {
	if !a.person && isFull(w.waiting, &w.deferred) {
		return false, false
	}
	if len(w.waiting) >= a.bound && a.person && !a.forBefore {
		tell = !w.fullNotified
		w.fullNotified = true
		return true, tell
	}
	w.waiting = append(w.waiting, a.r)
	w.arrived = a.env.Now()
	w.fullNotified = false
	if a.person && !a.forBefore && w.isOutdated() {
		w.cancel(turn.ErrInterrupted)
	}
	w.ring()
	a.admit(work) // w need not wait any more if its first message was dropped
	return false, false
}

// beside returns the session in which a message of the session key begins its turn while key waits
// for the answer to a question. It is key itself if the message must wait. Neither a due job nor a
// post to a hook of the chat waits until a person has answered a question.
func beside(key session.Key, o *bus.Origin) session.Key {
	switch {
	case o.Run != 0:
		return key.OfRun(o.Run)
	case o.Kind == bus.Hook && key.IsConversation():
		return key.OfHook(o.Label)
	}
	return key
}

// MaxOwn is the maximum number of messages in memory for a session when the next message was not
// written by a person.
const MaxOwn = 100

// isFull reports whether a message that the agent wrote to itself must stay in the inbox: too many
// messages are in memory, or an earlier one had to stay there (deferred). The dispatcher hands them
// out once there is room.
func isFull(waiting []bus.Received, deferred *bool) bool {
	*deferred = *deferred || len(waiting) >= MaxOwn
	return *deferred
}
