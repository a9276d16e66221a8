package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// A worker runs the turns of one session, one after another, while there is something to answer.
type worker struct {
	d      *Dispatcher
	key    session.Key
	wake   chan struct{} // rung when waiting grows
	resume *session.Turn // an earlier process' turn, to be finished first

	// Guarded by d.mu:
	waiting []bus.Received
	taking  []bus.Received // taken from waiting, and not yet in a transaction
	arrived time.Time      // when the newest of waiting came
	told    bool           // the sender knows that waiting is full
	parked  bool           // its turn waits, and another worker will go on with it
	alone   bool           // its turn is one by itself: see unasked.go

	// The worker's own:
	unanswered []string                // platform's ids of messages that an interrupted turn has left
	cancel     context.CancelCauseFunc // ends the running turn; nil if there is none
}

func (w *worker) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run works until nothing waits, the dispatcher drains, or the store fails.
func (w *worker) run(ctx context.Context) error {
	if w.resume != nil {
		if err := w.turn(ctx, w.resume, nil); err != nil {
			return err
		}
	}
	for !w.parked {
		batch := w.next(ctx)
		if batch == nil {
			break
		}
		m := batch[len(batch)-1].Message
		t := &session.Turn{Session: w.key, Address: m.From, ReplyTo: quoted(m)}
		if err := w.turn(ctx, t, batch); err != nil {
			return err
		}
	}
	return nil
}

// next returns what the next turn shall answer. If that is nothing, w is no longer
// the session's worker.
func (w *worker) next(ctx context.Context) []bus.Received {
	d := w.d
	for {
		d.mu.Lock()
		if len(w.waiting) == 0 || d.isDraining() {
			delete(d.workers, w.key)
			d.mu.Unlock()
			return nil
		}
		wait := w.quiet() - d.opts.Now().Sub(w.arrived)
		if wait <= 0 {
			batch := w.take()
			d.mu.Unlock()
			return batch
		}
		d.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-d.draining:
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// quiet returns how long nothing must have come before a turn begins. d.mu is held.
func (w *worker) quiet() time.Duration {
	if isUnasked(w.waiting[0].Message) {
		return 0
	}
	if w.d.mode(w.key) == Collect {
		return collectQuiet
	}
	if w.waiting[0].Message.Album != "" {
		return albumQuiet
	}
	return w.d.config().Debounce(w.waiting[0].Message.From.Account)
}

// take removes what belongs into one turn from waiting. d.mu is held.
func (w *worker) take() []bus.Received {
	n := 1
	w.alone = isUnasked(w.waiting[0].Message)
	switch mode := w.d.mode(w.key); {
	case w.alone:
	case mode == Collect, mode == Interrupt:
		n = w.asked()
	default:
		for n < len(w.waiting) && w.joined(n) {
			n++
		}
	}
	w.taking, w.waiting = w.waiting[:n:n], w.waiting[n:]
	return w.taking
}

// joined reports whether people see the waiting message n and the one before it as one: parts of
// an album, a new wording, or a text that was sent in pieces. d.mu is held.
func (w *worker) joined(n int) bool {
	a, b := &w.waiting[n-1], &w.waiting[n]
	if a.Message.Sender.ID != b.Message.Sender.ID || isUnasked(b.Message) {
		return false
	}
	if a.Message.Album != "" || b.Message.Album != "" {
		return a.Message.Album == b.Message.Album
	}
	if b.Message.Edits != "" {
		return slices.ContainsFunc(w.waiting[:n], func(r bus.Received) bool {
			return r.Message.ID == b.Message.Edits
		})
	}
	pause := w.d.config().Debounce(b.Message.From.Account)
	return pause > 0 && b.At.Sub(a.At) <= pause &&
		len(a.Message.Attachments)+len(b.Message.Attachments) == 0
}

// albumQuiet is how long no further part of an album must have come before it is complete.
const albumQuiet = 700 * time.Millisecond

// steered returns what the running turn shall see now, and removes it from waiting. Without files
// that is nothing if there are any: fetching them would hold up what is ready.
func (w *worker) steered(files bool) []bus.Received {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	n := w.asked()
	if w.d.mode(w.key) != Steer || w.alone || n == 0 ||
		!files && slices.ContainsFunc(w.waiting[:n], hasFiles) {
		return nil
	}
	w.taking, w.waiting = w.waiting[:n:n], w.waiting[n:]
	return w.taking
}

// asked returns how many waiting messages come before the first that begins a turn by itself. d.mu
// is held.
func (w *worker) asked() int {
	i := slices.IndexFunc(w.waiting, func(r bus.Received) bool { return isUnasked(r.Message) })
	if i < 0 {
		return len(w.waiting)
	}
	return i
}

// taken notes that the transaction with what take or steered returned is over.
func (w *worker) taken() {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.taking = nil
}

// hasNews reports whether the running turn should look at newer messages.
func (w *worker) hasNews() bool {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return w.asked() > 0 && !w.alone && w.d.mode(w.key) == Steer
}

// turn begins a turn with batch, or resumes st if batch is nil, and runs it to its end.
// An error is one of the store; everything else is the turn's own affair.
func (w *worker) turn(ctx context.Context, st *session.Turn, batch []bus.Received) error {
	d, outer := w.d, ctx
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, d.config().TurnTimeout, errTurnTimeout)
	defer cancelTimeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.mu.Lock()
	w.cancel = cancel
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		w.cancel = nil
		d.mu.Unlock()
	}()

	t := &turn{Turn: *st, d: d, w: w, began: d.opts.Now()}
	ctx, ended := d.opts.Observer.Turn(ctx, t.beginning(batch))
	err := t.guarded(ctx, batch)
	t.hide()
	ended(t.ending(err))
	switch {
	case errors.Is(err, errGone):
		return nil // dropped before it began
	case errors.Is(err, errParked):
		t.showEnd(true)
		d.park(w, t)
		return nil
	case errors.Is(err, errDraining): // left to the next process
	case errors.Is(err, session.ErrEnded): // by /stop
		t.showEnd(true)
	default:
		return err
	}
	var again *session.Turn
	if err := t.tx(ctx, func(tx *store.Tx) (e error) { // also as nobody else knows what it has used
		if errors.Is(err, errDraining) {
			return d.sessions.HandOver(tx, &t.Turn)
		}
		again, e = d.sessions.RunningTurn(tx, t.Session)
		return e
	}); err != nil {
		return err
	}
	if again != nil && again.ID == t.ID && again.Epoch == t.Epoch {
		return w.turn(outer, again, nil) // who was stopped was the turn before it
	}
	return nil
}

// guarded runs t. A panic ends this turn and nothing else.
func (t *turn) guarded(ctx context.Context, batch []bus.Received) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.d.logger(&t.Turn).ErrorContext(ctx, "turn panicked", "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()), "panics", t.d.panics.Add(1))
			err = t.panicked(ctx, batch)
		}
	}()
	return t.run(ctx, batch)
}

// panicked tells the chat that t has failed, also if it had not even begun.
func (t *turn) panicked(ctx context.Context, batch []bus.Received) error {
	if t.ID != 0 {
		return t.fail(ctx, sayPanic)
	}
	defer t.w.taken()
	return t.d.tx(ctx, func(tx *store.Tx) error {
		for _, r := range batch {
			if _, err := t.d.Inbox.Answer(tx, r.Seq); err != nil {
				return err
			}
		}
		return t.deliverFailure(tx, t.outbound(sayPanic))
	})
}

// errGone reports that a message was dropped before its turn began, or is left to the next process.
var errGone = errors.New("message waits no more")

// begin writes the turn's first step: it takes its messages and puts them into the transcript.
func (t *turn) begin(ctx context.Context, batch []bus.Received) error {
	d := t.d
	messages, r, err := t.perceive(ctx, batch)
	if err != nil {
		return err
	}
	if ctx.Err() != nil && d.isDraining() { // files may be missing only because of that
		t.w.taken()
		return errGone
	}
	if t.unasked == nil {
		t.answers, t.w.unanswered = append(t.w.unanswered, t.answers...), nil
	}
	now, gone := d.opts.Now(), false
	// It has used nothing yet, and there is nothing for the router: t.tx would be for both.
	err = d.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		if ok, err := t.beginRun(tx); err != nil || !ok {
			gone = true
			return t.dropAll(tx, batch, err)
		}
		gone = false
		title := batch[0].Message.ChatTitle
		if note := batch[0].Message.Note; note != nil && note.Session != "" {
			title = note.Label
		}
		if t.unasked != nil && t.unasked.Note.Session != "" { // else its prompt grew with each
			if err := d.sessions.Reset(tx, t.Session, now); err != nil {
				return err
			}
		}
		err := d.sessions.Begin(tx, &t.Turn, title, d.lease, now, messages...)
		if from := t.movedFrom(batch); err == nil && from != "" {
			err = d.moveScope(tx, t.Session, from, t.Scope)
		}
		if before := batch[0].Message.Before; err == nil && t.First && before != "" && d.Jobs != nil {
			a := batch[0].Message.From
			err = d.Jobs.MoveChat(tx, bus.Address{Account: a.Account, Chat: before},
				bus.Address{Account: a.Account, Chat: a.Chat})
		}
		if err == nil {
			err = r.touch(tx)
		}
		if err != nil {
			return err
		}
		return t.take(tx, &t.Turn, batch)
	})
	t.w.taken()
	if err != nil {
		return err
	}
	if gone {
		return errGone
	}
	d.opts.Logger.DebugContext(ctx, "turn begun", "session", t.Session, "turn", t.ID,
		"from", t.Address.String(), "seq", batch[0].Seq, "messages", len(batch))
	fault.Point("begun")
	if t.movedFrom(batch) != "" {
		d.ringChores()
	}
	t.settleStyle(ctx)
	t.history = append(t.history, messages...)
	return nil
}

// movedFrom returns the scope whose memory belongs to that of the turn from now on, "" if there is
// none: a person was linked with another, or is known since; or a group has another name.
func (t *turn) movedFrom(batch []bus.Received) memory.Scope {
	if before := batch[0].Message.Before; t.First && t.group && before != "" {
		return memory.OfChat(bus.Address{Account: t.Address.Account, Chat: before})
	}
	return t.Moved
}
