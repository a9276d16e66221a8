package pool

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A turn that waits for a person or a sub-agent is suspended: it has no worker, only an entry in
// memory. Only the dispatching goroutine decides its question, or reads the decision that a command
// has stored. Then it starts a worker again.

// A suspendedTurn is the entry of a suspended turn.
type suspendedTurn struct {
	turn         session.Turn
	question     question.Question
	cancel       func()         // ends the tool call that waits for the answer, if not nil
	waiting      []bus.Received // messages that arrived since
	fullNotified bool           // the sender knows that the session is full
	deferred     bool           // messages without an author stayed in the inbox for lack of room

	answers []string // platform's ids of the messages that the turn was to answer
}

// ReviewDue reviews the suspended turns for which something may have changed.
func (pl *Pool) ReviewDue(ctx, work context.Context) error {
	pl.mu.Lock()
	keys := pl.dueKeys
	pl.dueKeys = nil
	now := pl.env.Now()
	for key, p := range pl.suspended {
		if !now.Before(p.question.Expires) {
			keys = append(keys, key)
		}
	}
	pl.mu.Unlock()
	return review{pl}.all(ctx, work, keys)
}

// A review decides whether a suspended turn continues.
type review struct{ *Pool }

// all reviews the suspended turns of keys, in order.
func (rv review) all(ctx, work context.Context, keys []session.Key) error {
	for _, key := range keys {
		if err := rv.run(ctx, work, key); err != nil {
			return err
		}
	}
	return nil
}

// run decides the question of a suspended turn if possible, and resumes the turn if the question is
// decided.
func (rv review) run(ctx, work context.Context, key session.Key) error {
	p, err := rv.passJobs(ctx, work, key)
	if p == nil || err != nil {
		return err
	}
	q, err := question.Find(rv.env.DB.Read(work), p.question.ID)
	gone := errors.Is(err, question.ErrNone) // erased with its conversation
	if !gone && err != nil {
		// A turn whose question can't be read ends and tells the chat.
		_, err = rv.env.DB.RepairRows(work, rv.env.Logger, err, question.SetAside)
		if gone = err == nil; err != nil {
			return err
		}
	}
	if !gone && q.State == question.Open {
		if decided, err := rv.decide(ctx, p, q); err != nil || !decided {
			return err
		}
	}
	err = rv.tx(ctx, func(tx *store.Tx) error {
		return session.WakeTurn(tx, &p.turn, rv.Lease, rv.env.Now())
	})
	ended := errors.Is(err, session.ErrEnded) // a person has stopped it
	if err != nil && !ended {
		return err
	}
	if ended && p.cancel != nil {
		p.cancel()
	}
	p.turn.Epoch = rv.Lease.Epoch
	rv.mu.Lock()
	defer rv.mu.Unlock()
	delete(rv.suspended, key)
	w := &worker{waiting: p.waiting, arrived: rv.env.Now(), fullNotified: p.fullNotified,
		deferred: p.deferred}
	if !ended {
		w.resume, w.unanswered, w.heldCall = &p.turn, p.answers, p.cancel
	}
	if !ended || len(w.waiting) > 0 {
		rv.start(work, key, w)
	} else {
		rv.admit(work) // another session may be behind this one
	}
	return nil
}

// passJobs starts the jobs and hooks that wait for a suspended turn in sessions beside it. It also
// starts those that wait behind the turn because the group has moved. It returns the entry of
// the turn, or nil if the turn is no longer suspended.
func (rv review) passJobs(ctx, work context.Context, key session.Key) (*suspendedTurn, error) {
	rv.mu.Lock()
	p, ok := rv.suspended[key]
	if !ok {
		rv.mu.Unlock()
		return nil, nil
	}
	var jobs []bus.Received
	pass := func(key session.Key, waiting []bus.Received) (others []bus.Received) {
		for _, r := range waiting {
			if beside(key, &r.Message.Origin) != key {
				jobs = append(jobs, r)
			} else {
				others = append(others, r)
			}
		}
		return others
	}
	p.waiting = pass(key, p.waiting)
	for _, w := range rv.unadmitted {
		if w.isBehind() && session.Before(w.waiting[0].Message) == key {
			w.waiting = pass(w.key, w.waiting)
		}
	}
	rv.mu.Unlock()
	for _, r := range jobs {
		if _, _, err := rv.Enqueue(ctx, work, r, len(jobs)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// A decision is the outcome of a question.
type decision struct {
	state       question.State
	answer      string
	by          string
	answerIndex int // index of the waiting message that answers; -1: none
}

// decide decides q if it has expired or a waiting message decides it.
func (rv review) decide(ctx context.Context, p *suspendedTurn, q *question.Question) (bool, error) {
	made := decision{state: question.Expired, answer: turn.ResultNobody, answerIndex: -1}
	if q.Kind == question.Approve {
		made.answer = turn.ResultNotApproved
	}
	rv.mu.Lock()
	// A command may drop some of them meanwhile.
	waiting := slices.Concat(p.waiting, rv.behind(p.turn.Session))
	rv.mu.Unlock()
	if rv.env.Now().Before(q.Expires) {
		var ok bool
		if made, ok = decisionOf(q, waiting); !ok {
			return false, nil
		}
	}
	decided, gone := false, false
	err := rv.tx(ctx, func(tx *store.Tx) (err error) {
		gone = false
		decided, err = question.Decide(tx, q, made.state, made.answer, made.by)
		if err != nil || !decided || made.answerIndex < 0 {
			return err
		}
		ok, err := rv.env.Claim(tx, &waiting[made.answerIndex], p.turn.ID)
		if gone = err == nil && !ok; gone {
			return turn.ErrGone // it was dropped or is handed out again, so it decides nothing now
		}
		return err
	})
	if gone {
		err = nil
	}
	if err == nil && made.answerIndex >= 0 && (decided || gone) {
		answer := waiting[made.answerIndex]
		key := p.turn.Session
		if session.Before(answer.Message) == key {
			key = session.Of(answer.Message)
		}
		var now []bus.Received // the answer with another sender
		if gone {
			now = rv.renew(ctx, key, answer)
		}
		rv.mu.Lock()
		if w, ok := rv.workers[key]; ok {
			w.waiting = replaced(w.waiting, answer.Seq, now)
		}
		if other, ok := rv.suspended[key]; ok { // p, unless the group has moved
			other.waiting = replaced(other.waiting, answer.Seq, now)
		}
		if now != nil {
			rv.markDue(p.turn.Session)
		}
		rv.mu.Unlock()
	}
	return !gone, err // if another goroutine decided q, the message goes to the turn
}

// behind returns the messages of a group that has moved that wait behind key, its session from
// before, in order. The pool's mu is held.
func (rv review) behind(key session.Key) (list []bus.Received) {
	add := func(waiting []bus.Received) {
		for i := range waiting {
			if m := &waiting[i].Message; m.PreviousChat != "" && session.Before(*m) == key {
				list = append(list, waiting[i])
			}
		}
	}
	for _, w := range rv.workers {
		add(w.waiting)
	}
	for _, p := range rv.suspended {
		add(p.waiting)
	}
	slices.SortFunc(list, func(a, b bus.Received) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// decisionOf returns the decision by the first message that decides q. A message that was written
// before the question was asked decides nothing.
func decisionOf(q *question.Question, waiting []bus.Received) (decision, bool) {
	for i, r := range waiting {
		m := r.Message
		by := m.From.Account + "/" + m.Sender.ID
		person := m.Origin.Kind == bus.Person
		elsewhere := !m.Group && m.From != q.Address // in another chat of the same person
		asked := person && (q.MayAnswer(&m) || elsewhere) && r.Seq > q.After
		switch {
		case q.Kind == question.Await && person:
			return decision{question.Refused, turn.ResultGoesOn, by, -1}, true
		case q.Kind == question.Await && m.Origin.Kind == bus.Outcome && m.Origin.Call == q.Call:
			return decision{question.Answered, prompt.Escape(m.Text), "", i}, true
		case q.Kind == question.Ask && asked && (hasFiles(r) || m.Edits != "" || m.Forwarded != "" ||
			elsewhere):
			return decision{question.Refused, turn.ResultOther, by, -1}, true
		case q.Kind == question.Ask && asked:
			return decision{question.Answered, chosenAnswer(q, m.Text, false), by, i}, true
		case q.Kind == question.Approve && asked && m.Role.AtLeast(q.MinRole):
			return decision{question.Refused, turn.ResultOther, by, -1}, true
		}
	}
	return decision{}, false
}

// decides reports whether q waits for r.
func decides(q *question.Question, r bus.Received) bool {
	_, ok := decisionOf(q, []bus.Received{r})
	return ok
}

// decidesBefore reports whether r decides a question that was asked in its group before that moved.
// A wait for a sub-agent is not such a question, because no message answers it. The caller holds
// pl.mu.
func decidesBefore(pl *Pool, r bus.Received) bool {
	p, ok := pl.suspended[session.Before(r.Message)]
	return ok && p.question.Kind != question.Await && decides(&p.question, r)
}

// chosenAnswer returns the option that text selects by number or wording, or text as the user's own
// words. A button sends the number. A number that a person has written may also be the wording of
// an option, which they then mean. The answer for a tool has no further words.
func chosenAnswer(q *question.Question, text string, button bool) string {
	text = strings.TrimSpace(text)
	chosen := slices.Index(q.Options, text)
	if chosen < 0 {
		chosen = slices.IndexFunc(q.Options, func(o string) bool { return strings.EqualFold(o, text) })
	}
	if n := q.Index(text); n >= 0 && (button || chosen < 0 && q.Numbered()) {
		chosen = n
	}
	switch {
	case chosen >= 0 && q.Continues != nil:
		return q.Options[chosen]
	case chosen >= 0:
		return "The user chose: " + q.Options[chosen]
	case q.Continues != nil:
		return text
	}
	return "The user answered: " + prompt.Escape(text)
}
