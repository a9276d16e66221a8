package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
)

// A worker runs the turns of one session, one after another, while messages wait. It is the
// [turn.Mailbox] of the running turn.
type worker struct {
	pool *Pool
	key  session.Key
	wake chan struct{} // signalled when waiting grows

	// The pool's mu guards:
	resume       *session.Turn // turn of an earlier process to finish first
	waiting      []bus.Received
	claiming     []bus.Received // removed from waiting, but not in a transaction yet
	arrived      time.Time      // when the newest waiting message arrived
	deferred     bool           // messages without an author stayed in the inbox for lack of room
	fullNotified bool           // the sender knows that the session is full
	asker        asker          // person and chat that the running turn answers
	suspended    bool           // the turn is suspended; another worker will continue it
	standalone   bool           // no other message joins the turn: see bus.Origin.Standalone
	trialEnded   chan struct{}  // closed when the trial ends; nil if the worker is not on trial
	unanswered   []string       // platform's ids of messages that an interrupted turn left

	cancel context.CancelCauseFunc // ends the running turn; nil if none runs

	// Used by the worker's goroutine only:
	heldCall func() // ends the call that the resumed turn continues; or nil
}

func (w *worker) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// isBehind reports whether the next turn of w must wait because the group of its message has moved,
// and the session from before still has work. A turn in place of an interrupted one waits only if
// its message decides a question of that session. The pool's mu is held.
func (w *worker) isBehind() bool {
	if w.resume != nil || len(w.waiting) == 0 {
		return false
	}
	return decidesBefore(w.pool, w.waiting[0]) ||
		len(w.unanswered) == 0 && w.pool.has(session.Before(w.waiting[0].Message))
}

// run works until no message waits, the dispatcher drains, or the store is lost.
func (w *worker) run(ctx context.Context) error {
	if w.resume != nil { // only turn, which this goroutine calls, changes it
		if err := w.turn(ctx, w.resume, nil); err != nil {
			return err
		}
	}
	for !w.suspended {
		batch := w.next(ctx)
		if batch == nil {
			break
		}
		if err := w.turn(ctx, w.newTurn(batch), batch); err != nil {
			return err
		}
	}
	return nil
}

// Thousands of workers can wait for the model, each with the frames of run and turn on its stack.
// Code that needs much stack, such as for copies of messages, is therefore in separate functions
// that the compiler must not inline.

// newTurn returns the turn that answers batch.
//
//go:noinline
func (w *worker) newTurn(batch []bus.Received) *session.Turn {
	m := &batch[len(batch)-1].Message
	return &session.Turn{Session: w.key, Address: m.From, ReplyTo: turn.QuoteID(*m)}
}

// next returns the messages for the next turn. If there are none, it removes w from the pool. If w
// is behind another session, it returns none, and w goes on when it is admitted again.
func (w *worker) next(ctx context.Context) []bus.Received {
	pl := w.pool
	for {
		pl.mu.Lock()
		if len(w.waiting) == 0 || pl.env.IsDraining() {
			delete(pl.workers, w.key)
			pl.mu.Unlock()
			return nil
		}
		if w.isBehind() {
			pl.unadmitted = append(pl.unadmitted, w)
			pl.markDue(session.Before(w.waiting[0].Message)) // they may decide its question
			pl.mu.Unlock()
			return nil
		}
		pause := w.debounce()
		wait := pause - pl.env.Now().Sub(w.arrived)
		if pause > 0 && wait <= 0 && pl.More.Load() {
			wait = moreWait
		}
		if wait <= 0 {
			batch := w.claim()
			pl.mu.Unlock()
			return batch
		}
		pl.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-pl.env.Draining:
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// moreWait is how often a worker checks whether all messages that have arrived together were handed
// out. It waits only on a machine that is busy for longer than the pause between messages.
const moreWait = 10 * time.Millisecond

// debounce returns the time without new messages after which a turn begins. It is 0 if no further
// message can join those of the turn, because another one follows them. The pool's mu is held.
func (w *worker) debounce() time.Duration {
	if w.waiting[0].Message.Origin.Standalone() || w.claimable() < len(w.waiting) {
		return 0
	}
	if w.pool.Mode(w.key) == Collect {
		return CollectPause
	}
	pause := w.pool.Config().Debounce[w.waiting[0].Message.From.Account]
	if w.waiting[0].Message.Album != "" {
		pause = max(pause, albumPause)
	}
	return pause
}

// claimable returns how many of the waiting messages the next turn claims. The pool's mu is held.
func (w *worker) claimable() int {
	n := 1
	switch {
	case w.waiting[0].Message.Origin.Standalone(), IsSuspect(w.waiting[0]):
	case w.pool.Mode(w.key) != Followup:
		n = w.asked(askerOf(w.waiting[0].Message))
	default:
		for n < len(w.waiting) && !IsSuspect(w.waiting[n]) && w.joined(n) {
			n++
		}
	}
	return n
}

// claim removes the messages of the next turn from waiting. The pool's mu is held.
func (w *worker) claim() []bus.Received {
	n := w.claimable()
	w.standalone = w.waiting[0].Message.Origin.Standalone()
	w.claiming, w.waiting = w.waiting[:n:n], w.waiting[n:]
	w.claimEdits()
	w.listen(w.claiming)
	return w.claiming
}

// claimEdits also claims the waiting messages that reword claimed ones, even if others come before
// them. Otherwise the turn would act on a wording that is known to be wrong. The pool's mu is held.
func (w *worker) claimEdits() {
	rewords := func(r bus.Received) bool {
		return r.Message.Edits != "" && !IsSuspect(r) &&
			slices.ContainsFunc(w.claiming, func(o bus.Received) bool {
				return r.Message.Rewords(&o.Message) && askerOf(o.Message) == askerOf(r.Message)
			})
	}
	var others []bus.Received
	for _, r := range w.waiting {
		if rewords(r) {
			w.claiming = append(w.claiming, r)
		} else {
			others = append(others, r)
		}
	}
	w.waiting = others
}

// hasFiles reports whether r or the message that it quotes has files.
func hasFiles(r bus.Received) bool { return attachment.HasFiles(r.Message) }

// joined reports whether the waiting message n and the one before it are one message for people:
// parts of an album, an edit, or pieces of a long text. The pool's mu is held.
func (w *worker) joined(n int) bool {
	a, b := &w.waiting[n-1], &w.waiting[n]
	if a.Message.From != b.Message.From || a.Message.Sender.ID != b.Message.Sender.ID ||
		b.Message.Origin.Standalone() {
		return false
	}
	if a.Message.Album != "" && a.Message.Album == b.Message.Album {
		return true
	}
	if b.Message.Edits != "" {
		return slices.ContainsFunc(w.waiting[:n], func(r bus.Received) bool {
			return b.Message.Rewords(&r.Message)
		})
	}
	pause := w.pool.Config().Debounce[b.Message.From.Account]
	return pause > 0 && b.At.Sub(a.At) <= pause &&
		len(a.Message.Attachments)+len(b.Message.Attachments) == 0
}

// albumPause is the time without a further part after which an album counts as complete.
const albumPause = 700 * time.Millisecond

// Next implements [turn.Mailbox].
func (w *worker) Next() []bus.Received {
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	n := w.asked(w.asker)
	if w.pool.Mode(w.key) != Steer || w.standalone || n == 0 {
		return nil
	}
	w.claiming, w.waiting = w.waiting[:n:n], w.waiting[n:]
	return w.claiming
}

// asked returns how many of the waiting messages a turn that answers by may claim: all before the
// first one that needs a turn of its own or decides a question of another session. A suspect needs
// one, because it may crash its turn. The pool's mu is held.
func (w *worker) asked(by asker) int {
	i := slices.IndexFunc(w.waiting, func(r bus.Received) bool {
		return r.Message.Origin.Standalone() || IsSuspect(r) || by.isOther(r.Message) ||
			decidesBefore(w.pool, r)
	})
	if i < 0 {
		return len(w.waiting)
	}
	return i
}

// isOther reports whether the running turn must not answer r. The pool's mu is held.
func (w *worker) isOther(r bus.Received) bool { return w.asker.isOther(r.Message) }

// isOutdated reports whether w runs a turn that must end because its person has written again. The
// pool's mu is held.
func (w *worker) isOutdated() bool {
	return w.pool.Mode(w.key) == Interrupt && w.cancel != nil && !w.standalone &&
		slices.ContainsFunc(w.waiting, func(r bus.Received) bool {
			return r.Message.Origin.Kind == bus.Person && !decidesBefore(w.pool, r)
		}) &&
		!slices.ContainsFunc(w.waiting, w.isOther) // only the same person interrupts
}

// An asker identifies the person and the chat that a turn answers.
type asker struct {
	from   bus.Address
	id     string // platform's id; "": nobody has asked
	person int64  // the person's number
}

func askerOf(m bus.InboundMessage) asker { return asker{m.From, m.Sender.ID, m.Person} }

// isOther reports whether m needs another turn than the one that answers a. In a group, the
// questions of each person get turns of their own. In a person's conversation, those of each chat
// do, because the answer goes to that chat. After a link or an unlink, a turn that knows the memory
// of the person before does not answer the person of now.
func (a asker) isOther(m bus.InboundMessage) bool {
	if m.From != a.from || m.Origin.Kind != bus.Person {
		return m.From != a.from
	}
	return m.Group && m.Sender.ID != a.id || a.id != "" && m.Person != a.person
}

// listen records the person and the chat that the turn with batch answers. The pool's mu is held.
func (w *worker) listen(batch []bus.Received) {
	for _, r := range batch {
		w.asker.from = r.Message.From
		if r.Message.Origin.Kind == bus.Person {
			w.asker.id, w.asker.person = r.Message.Sender.ID, r.Message.Person
		}
	}
}

// Claimed implements [turn.Mailbox].
func (w *worker) Claimed(ctx context.Context, err error) {
	gone, _ := errors.AsType[turn.GoneError](err)
	w.renew(ctx, gone)
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	if err != nil {
		w.waiting = append(w.claiming, w.waiting...)
	}
	w.claiming = nil
	if err == nil {
		w.endTrial(false)
	}
}

// renew replaces the messages that could not be claimed because their sender has changed. The
// others of gone leave the memory.
func (w *worker) renew(ctx context.Context, gone turn.GoneError) {
	if len(gone) == 0 {
		return
	}
	w.pool.mu.Lock()
	claiming := w.claiming
	w.pool.mu.Unlock()
	for _, r := range claiming {
		if slices.Contains(gone, r.Seq) {
			now := w.pool.renew(ctx, w.key, r)
			w.pool.mu.Lock() // a command may have dropped some of claiming meanwhile
			w.claiming = replaced(w.claiming, r.Seq, now)
			w.pool.mu.Unlock()
		}
	}
}

// replaced returns list with now, which may be none, instead of the message with the given Seq.
func replaced(list []bus.Received, seq int64, now []bus.Received) []bus.Received {
	i := slices.IndexFunc(list, func(r bus.Received) bool { return r.Seq == seq })
	if i < 0 {
		return list
	}
	return slices.Concat(list[:i], now, list[i+1:])
}

// renew returns r with its present sender, if r still waits for the session key. Otherwise it
// returns none, and the dispatcher hands r out again if r waits for another session.
func (pl *Pool) renew(ctx context.Context, key session.Key, r bus.Received) []bus.Received {
	if pl.env.Senders != nil {
		now, ok, err := pl.env.Senders.Renew(ctx, r)
		switch {
		case err != nil:
			pl.env.Logger.WarnContext(ctx, "message is handed out again", "seq", r.Seq, "err", err)
		case ok && session.Of(now.Message) == key:
			return []bus.Received{now}
		}
	}
	pl.handOutAgain()
	return nil
}

// drop forgets batch, which no longer waits.
func (w *worker) drop(batch []bus.Received) {
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	w.forget(func(r bus.Received) bool {
		return slices.ContainsFunc(batch, func(b bus.Received) bool { return b.Seq == r.Seq })
	})
}

// forget removes the messages for which gone returns true from those that wait or are being
// claimed. The pool's mu is held.
func (w *worker) forget(gone func(bus.Received) bool) {
	w.claiming = slices.DeleteFunc(slices.Clone(w.claiming), gone)
	w.waiting = slices.DeleteFunc(slices.Clone(w.waiting), gone)
}

// HasNews implements [turn.Mailbox].
func (w *worker) HasNews() bool {
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	return w.asked(w.asker) > 0 && !w.standalone && w.pool.Mode(w.key) == Steer
}

// turn begins a turn with batch, or resumes st if batch is nil, and runs it until it returns. An
// error means that the store is lost.
func (w *worker) turn(ctx context.Context, st *session.Turn, batch []bus.Received) error {
	if batch == nil {
		w.rejoin(ctx, st)
	}
	pl := w.pool
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pl.mu.Lock()
	if w.cancel = cancel; batch == nil && w.isOutdated() {
		cancel(turn.ErrInterrupted) // somebody has written while the turn was suspended
	}
	pl.mu.Unlock()
	out, err := turn.Run(work, pl.env, w.start(st, batch), w)
	if out.Refused {
		w.drop(batch)
	}
	if err == nil && out.State == turn.Suspended {
		pl.suspend(w, out)
	}
	pl.mu.Lock()
	w.cancel, w.resume, w.unanswered = nil, nil, out.Unanswered
	pl.mu.Unlock()
	if err == nil && out.Resume != nil {
		return w.turn(ctx, out.Resume, nil)
	}
	return err
}

// start describes a turn that begins with batch, or resumes st if batch is nil.
//
//go:noinline
func (w *worker) start(st *session.Turn, batch []bus.Received) *turn.Start {
	pl := w.pool
	pl.mu.Lock()
	numbered, unanswered := pl.Mode(w.key) == Collect, w.unanswered
	pl.mu.Unlock()
	s := &turn.Start{Turn: *st, Messages: batch, Numbered: numbered, Lease: pl.Lease,
		Settings: pl.ConfigOf(w.key), Unanswered: unanswered, HeldCall: w.heldCall}
	w.heldCall = nil
	if at, ok := pl.Config().ResetAt[st.Address.Account]; ok {
		s.ResetAt = &at
	}
	return s
}

// rejoin records the messages that the resumed turn st has claimed. If they can't be read, the turn
// itself fails on them and tells the chat.
func (w *worker) rejoin(ctx context.Context, st *session.Turn) {
	pl := w.pool
	batch, err := pl.env.Inbox.ClaimedBy(pl.env.DB.Read(context.WithoutCancel(ctx)), st.ID)
	if err != nil || len(batch) == 0 {
		return
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	w.standalone = batch[0].Message.Origin.Standalone()
	w.listen(batch)
}
