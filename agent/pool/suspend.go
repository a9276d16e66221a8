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
	if decided, err := rv.isDecided(ctx, work, p); err != nil || !decided {
		return err
	}
	ended, err := rv.wake(ctx, p)
	if err != nil {
		return err
	}
	rv.resume(work, key, p, ended)
	return nil
}

// isDecided reports whether the question of p is decided. If it is open, isDecided tries to decide
// it. A turn without a readable question resumes, ends and tells the chat.
func (rv review) isDecided(ctx, work context.Context, p *suspendedTurn) (bool, error) {
	q, err := question.Find(rv.env.DB.Read(work), p.question.ID)
	switch {
	case errors.Is(err, question.ErrNone): // erased with its conversation
		return true, nil
	case err != nil:
		_, err = rv.env.DB.RepairRows(work, rv.env.Logger, err, question.SetAside)
		return err == nil, err
	case q.State != question.Open:
		return true, nil
	}
	return rv.decide(ctx, p, q)
}

// wake stores in the database that the turn of p goes on. If a person has stopped the turn, wake
// ends its tool call and returns true.
func (rv review) wake(ctx context.Context, p *suspendedTurn) (ended bool, err error) {
	err = rv.tx(ctx, func(tx *store.Tx) error {
		return session.WakeTurn(tx, &p.turn, rv.Lease, rv.env.Now())
	})
	if !errors.Is(err, session.ErrEnded) {
		return false, err
	}
	if p.cancel != nil {
		p.cancel()
	}
	return true, nil
}

// resume starts a worker for the turn of p, or only for the messages that wait for the turn if it
// has ended.
func (rv review) resume(work context.Context, key session.Key, p *suspendedTurn, ended bool) {
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
		rv.removeAnswer(ctx, p, waiting[made.answerIndex], gone)
	}
	return !gone, err // if another goroutine decided q, the message goes to the turn
}

// removeAnswer removes a message from those that wait, because it has decided the question of p. If
// the message is gone, it decided nothing: the same message with its present sender replaces it, if
// there is one.
func (rv review) removeAnswer(
	ctx context.Context, p *suspendedTurn, answer bus.Received, gone bool,
) {
	key := p.turn.Session
	if session.Before(answer.Message) == key {
		key = session.Of(answer.Message)
	}
	var now []bus.Received
	if gone {
		now = rv.renew(ctx, key, answer)
	}
	rv.mu.Lock()
	defer rv.mu.Unlock()
	if w, ok := rv.workers[key]; ok {
		w.waiting = replaced(w.waiting, answer.Seq, now)
	}
	if other, ok := rv.suspended[key]; ok { // p, unless the group has moved
		other.waiting = replaced(other.waiting, answer.Seq, now)
	}
	if now != nil {
		rv.markDue(p.turn.Session)
	}
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
		asked := person && (q.MayAnswer(&m) || elsewhere) && r.Came() > q.After
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
