package agent

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// A turn that waits for somebody is parked: it has no worker, and what is left of it in memory
// is its place. Only the goroutine that hands messages out decides its question, or hears that
// a command has, and then gives it a worker again.

// errParked reports that a turn waits for somebody.
var errParked = errors.New("turn waits")

// parked is the place of a turn that waits.
type parked struct {
	turn     session.Turn
	question question.Question
	waiting  []bus.Received // that came meanwhile, and are for the turn or those after it
	told     bool           // the sender knows that waiting is full
	deferred bool           // more notes are in the inbox than there is room for

	answers []string // platform's ids of the messages that it was to answer when it began to wait
}

// parkFor writes what the call c waits for, and reports errParked. A result that can't come about
// is written at once instead.
func (t *turn) parkFor(ctx context.Context, c llm.ToolCall, a *asks) error {
	q := &a.question
	q.Session, q.Turn, q.Call, q.Address = string(t.Session), t.ID, c.ID, t.Address
	if q.Kind == question.Approve {
		q.Sender = t.sender.ID
	}
	var refusal *tool.RefusedError
	err := t.tx(ctx, func(tx *store.Tx) error {
		refusal = nil
		if a.result.Commit != nil {
			_, err := a.result.Commit(tx)
			if errors.As(err, &refusal) {
				return t.append(tx, &t.Turn, nil, []llm.Message{prompt.ToolResult(c, toolError(refusal, ""))})
			}
			if err != nil {
				return err
			}
		}
		if err := t.append(tx, &t.Turn, nil, nil); err != nil {
			return err // it was stopped
		}
		var err error
		if q.After, err = t.d.Inbox.Newest(tx); err != nil {
			return err
		}
		if err := t.d.questions.Put(tx, q); err != nil {
			return err
		}
		return t.putPrompts(tx, q)
	})
	if err != nil {
		return err
	}
	t.d.Inbox.Wake() // what Commit has put there is not heard of otherwise
	if refusal != nil {
		t.recall(prompt.ToolResult(c, toolError(refusal, "")))
		return nil
	}
	fault.Point("parked")
	t.asked = *q
	return errParked
}

// putPrompts asks q in the conversation, and, if nobody there need be somebody who may decide, also
// where owners read it.
func (t *turn) putPrompts(tx *store.Tx, q *question.Question) error {
	if q.Kind == question.Await {
		return nil
	}
	out := askFor(q, !t.group && t.role.AtLeast(q.Least))
	out.ReplyTo = t.ReplyTo
	if err := t.d.Outbox.Put(tx, out, t.d.opts.Now()); err != nil {
		return err
	}
	if q.Kind != question.Approve || t.role.AtLeast(q.Least) {
		return nil
	}
	return t.d.tellOwners(tx, func(to bus.Address) bus.OutboundMessage {
		copied := askFor(q, true)
		copied.To = to
		copied.Text = "In `" + q.Address.String() + "`, where " +
			prompt.Name(t.sender.Name, t.sender.ID) + " (" + string(t.role) + ") writes, " + copied.Text
		return copied
	}, q.Address)
}

// tellOwners puts a message into the direct chat of each owner, but for the one at but.
func (d *Dispatcher) tellOwners(
	tx *store.Tx, message func(to bus.Address) bus.OutboundMessage, but bus.Address,
) error {
	owners, err := d.opts.Owners(tx)
	for i := 0; i < len(owners) && err == nil; i++ {
		if owners[i] != but {
			err = d.Outbox.Put(tx, message(owners[i]), d.opts.Now())
		}
	}
	return err
}

// park takes the place of w, whose turn waits from now on.
func (d *Dispatcher) park(w *worker, t *turn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.workers, w.key)
	t.First = false // there is more in the transcript by now than what it has begun with
	d.parked[w.key] = &parked{turn: t.Turn, question: t.asked, waiting: w.waiting, told: w.told,
		deferred: w.deferred, answers: t.answers}
	w.waiting, w.parked = nil, true
	d.due(w.key) // its question may be decided by now, or by what waits
}

// due lets the dispatching goroutine look at a parked turn soon. d.mu is held.
func (d *Dispatcher) due(key session.Key) {
	d.dueKeys = append(d.dueKeys, key)
	select {
	case d.dueC <- struct{}{}:
	default:
	}
}

// reviewDue looks at the parked turns for which something may have changed.
func (d *Dispatcher) reviewDue(ctx, work context.Context) error {
	d.mu.Lock()
	keys := d.dueKeys
	d.dueKeys = nil
	now := d.opts.Now()
	for key, p := range d.parked {
		if !now.Before(p.question.Expires) {
			keys = append(keys, key)
		}
	}
	d.mu.Unlock()
	for _, key := range keys {
		if err := d.review(ctx, work, key); err != nil {
			return err
		}
	}
	return nil
}

// review decides the question of a parked turn, if that can be done, and lets the turn go on once
// it is decided.
func (d *Dispatcher) review(ctx, work context.Context, key session.Key) error {
	p, err := d.passJobs(ctx, work, key)
	if p == nil || err != nil {
		return err
	}
	q, err := d.questions.Get(d.DB.Read(work), p.question.ID)
	if err != nil && !errors.Is(err, question.ErrNone) { // it was erased with its conversation
		return err
	}
	if err == nil && q.State == question.Open {
		if decided, err := d.decide(ctx, p, q); err != nil || !decided {
			return err
		}
	}
	err = d.tx(ctx, func(tx *store.Tx) error {
		return d.sessions.Wake(tx, &p.turn, d.lease, d.opts.Now())
	})
	ended := errors.Is(err, session.ErrEnded) // stopped meanwhile
	if err != nil && !ended {
		return err
	}
	p.turn.Epoch = d.lease.Epoch
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.parked, key)
	w := &worker{waiting: p.waiting, arrived: d.opts.Now(), told: p.told,
		deferred: p.deferred}
	if !ended {
		w.resume, w.unanswered = &p.turn, p.answers
	}
	if !ended || len(w.waiting) > 0 {
		d.start(work, key, w)
	}
	return nil
}

// passJobs lets what is due begin beside a parked turn, also if it has come before that waited, and
// returns the place of that; nil if there is none.
func (d *Dispatcher) passJobs(ctx, work context.Context, key session.Key) (*parked, error) {
	d.mu.Lock()
	p, ok := d.parked[key]
	if !ok {
		d.mu.Unlock()
		return nil, nil
	}
	var jobs, others []bus.Received
	for _, r := range p.waiting {
		if r.Message.Origin.Run != 0 {
			jobs = append(jobs, r)
		} else {
			others = append(others, r)
		}
	}
	p.waiting = others
	d.mu.Unlock()
	for _, r := range jobs {
		if err := d.enqueue(ctx, work, r, len(jobs)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// A decision is what becomes of a question.
type decision struct {
	state  question.State
	answer string
	by     string
	take   int // index of the waiting message that is the answer; -1: none is
}

// decide decides q, if the time or a waiting message does that.
func (d *Dispatcher) decide(
	ctx context.Context, p *parked, q *question.Question,
) (bool, error) {
	made := decision{state: question.Expired, answer: resultNobody, take: -1}
	if q.Kind == question.Approve {
		made.answer = resultNotApproved
	}
	if d.opts.Now().Before(q.Expires) {
		var ok bool
		if made, ok = decisionOf(q, p.waiting); !ok {
			return false, nil
		}
	}
	decided, gone := false, false
	err := d.tx(ctx, func(tx *store.Tx) (err error) {
		gone = false
		decided, err = d.questions.Decide(tx, q, made.state, made.answer, made.by)
		if err != nil || !decided || made.take < 0 {
			return err
		}
		ok, err := d.Inbox.Take(tx, p.waiting[made.take].Seq, p.turn.ID)
		if gone = err == nil && !ok; gone {
			return errGone // it was dropped: it decides nothing
		}
		return err
	})
	if gone {
		err = nil
	}
	if err == nil && made.take >= 0 && (decided || gone) {
		d.mu.Lock()
		p.waiting = slices.Delete(slices.Clone(p.waiting), made.take, made.take+1)
		d.mu.Unlock()
	}
	return !gone, err // if somebody else has decided it, the message is for the turn
}

// decisionOf returns what the messages that came make of q: the first that decides it does. What
// was written before somebody was asked says nothing of the question.
func decisionOf(q *question.Question, waiting []bus.Received) (decision, bool) {
	for i, r := range waiting {
		m := r.Message
		by := m.From.Account + "/" + m.Sender.ID
		person := m.Origin.Kind == bus.Person
		asked := person && m.Sender.ID == q.Sender && r.Seq > q.After
		switch {
		case q.Kind == question.Await && person:
			return decision{question.Refused, resultGoesOn, by, -1}, true
		case q.Kind == question.Await && m.Origin.Kind == bus.Outcome && m.Origin.Call == q.Call:
			return decision{question.Answered, prompt.Escape(m.Text), "", i}, true
		case q.Kind == question.Ask && asked && (hasFiles(r) || m.Edits != ""):
			return decision{question.Refused, resultOther, by, -1}, true
		case q.Kind == question.Ask && asked:
			return decision{question.Answered, chosen(q, m.Text), by, i}, true
		case q.Kind == question.Approve && asked && m.Role.AtLeast(q.Least):
			return decision{question.Refused, resultOther, by, -1}, true
		}
	}
	return decision{}, false
}

// decides reports whether r is what q waits for.
func decides(q *question.Question, r bus.Received) bool {
	_, ok := decisionOf(q, []bus.Received{r})
	return ok
}

// chosen returns the option that text names by its number or its words, else text as the user's
// own words.
func chosen(q *question.Question, text string) string {
	text = strings.TrimSpace(text)
	if n, err := strconv.Atoi(strings.TrimSuffix(text, ".")); err == nil &&
		n >= 1 && n <= len(q.Options) {
		return "The user chose: " + q.Options[n-1]
	}
	for _, option := range q.Options {
		if strings.EqualFold(option, text) {
			return "The user chose: " + option
		}
	}
	return "The user answered: " + prompt.Escape(text)
}

// resumeWait gives the first of the open calls its result if it is the one for which the turn has
// waited, and then makes the others, which have not begun. It reports false if the turn has not
// waited.
func (t *turn) resumeWait(ctx context.Context, open []llm.ToolCall) (bool, error) {
	c := open[0]
	q, err := t.d.questions.OfCall(t.d.DB.Read(context.WithoutCancel(ctx)), t.ID, c.ID)
	if err != nil || q == nil {
		return false, err
	}
	t.woken = true
	switch q.State {
	case question.Open: // of a turn that was killed before it was parked in memory
		t.asked = *q
		return true, errParked
	case question.Granted:
		err = t.useGrant(ctx, c, q)
	case question.Used: // killed while the call ran
		if t.effect(c) == tool.Once || !t.approves(q, c) {
			err = t.write(ctx, prompt.ToolResult(c, resultUnknown))
		} else {
			err = t.runGranted(ctx, c, q)
		}
	default:
		m := prompt.ToolResult(c, t.capped(q.Answer))
		if q.Kind == question.Await {
			m.Foreign = prompt.FromTask
		}
		err = t.write(ctx, m)
	}
	if err != nil || ctx.Err() != nil {
		return true, err
	}
	if rest := open[1:]; len(rest) > 0 && t.w.hasNews() {
		err = t.write(ctx, prompt.CloseCalls(t.history, resultSkipped)...)
	} else {
		err = t.runCalls(ctx, rest)
	}
	if err != nil {
		return true, err
	}
	return true, t.boundary(ctx)
}

// useGrant makes the call that q allows. That it begins is written before, so that it never
// begins twice.
func (t *turn) useGrant(ctx context.Context, c llm.ToolCall, q *question.Question) error {
	switch {
	case ctx.Err() != nil:
		return nil // up to the next process
	case !t.approves(q, c):
		return t.write(ctx, prompt.ToolResult(c, resultChanged))
	case !t.d.opts.Now().Before(q.Expires):
		return t.write(ctx, prompt.ToolResult(c, resultLate))
	}
	var ok bool
	err := t.tx(ctx, func(tx *store.Tx) (err error) {
		if err := t.append(tx, &t.Turn, nil, nil); err != nil {
			return err
		}
		ok, err = t.d.questions.Use(tx, q)
		return err
	})
	switch {
	case err != nil:
		return err
	case !ok:
		return t.write(ctx, prompt.ToolResult(c, resultUnknown))
	}
	fault.Point("granted")
	return t.runGranted(ctx, c, q)
}

// runGranted makes a call that somebody has approved.
func (t *turn) runGranted(ctx context.Context, c llm.ToolCall, q *question.Question) error {
	t.show(t.partial, "Using "+c.Name+" …")
	d, ok := t.call(ctx, c, q)
	if !ok {
		return nil
	}
	return t.conclude(ctx, c, d)
}
