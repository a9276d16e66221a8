package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"gateway/agent/llm"
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
	waiting  []bus.Received
	taking   []bus.Received // taken from waiting, and not yet in a transaction
	arrived  time.Time      // when the newest of waiting came
	deferred bool           // no room for more that no person wrote: it stays in the inbox
	told     bool           // the sender knows that waiting is full
	asker    string         // platform's id of whom the running turn answers
	parked   bool           // its turn waits, and another worker will go on with it
	alone    bool           // no other message joins its turn: see bus.Origin.Standalone
	proof    chan struct{}  // closed once it need not be tried alone any more; nil: it need not

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
	if w.waiting[0].Message.Origin.Standalone() {
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
	w.alone = w.waiting[0].Message.Origin.Standalone()
	switch mode := w.d.mode(w.key); {
	case w.alone, isSuspect(w.waiting[0]):
	case mode == Collect, mode == Interrupt:
		n = w.asked(w.waiting[0].Message.Sender.ID)
	default:
		for n < len(w.waiting) && !isSuspect(w.waiting[n]) && w.joined(n) {
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
	if a.Message.Sender.ID != b.Message.Sender.ID || b.Message.Origin.Standalone() {
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
	n := w.asked(w.asker)
	if w.d.mode(w.key) != Steer || w.alone || n == 0 ||
		!files && slices.ContainsFunc(w.waiting[:n], hasFiles) {
		return nil
	}
	w.taking, w.waiting = w.waiting[:n:n], w.waiting[n:]
	return w.taking
}

// asked returns how many waiting messages a turn that answers a person may take: those that come
// before the first that begins a turn by itself, as in a group each one of somebody else does. d.mu
// is held.
func (w *worker) asked(person string) int {
	i := slices.IndexFunc(w.waiting, func(r bus.Received) bool {
		return r.Message.Origin.Standalone() || isOthers(r.Message, person)
	})
	if i < 0 {
		return len(w.waiting)
	}
	return i
}

// isOther reports whether r is a question in a group by somebody whom the running turn does not
// answer. d.mu is held.
func (w *worker) isOther(r bus.Received) bool {
	return isOthers(r.Message, w.asker)
}

// isOthers reports whether m is a question in a group by somebody else than person.
func isOthers(m bus.InboundMessage, person string) bool {
	return m.Group && m.Origin.Kind == bus.Person && m.Sender.ID != person
}

// answers notes whom the running turn answers.
func (w *worker) answers(s bus.Sender) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.asker = s.ID
}

// taken notes that the transaction with what take or steered returned is over, with err. If it has
// failed, what of that still waits comes first again.
func (w *worker) taken(err error) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if err != nil {
		gone, _ := errors.AsType[goneError](err)
		left := slices.DeleteFunc(slices.Clone(w.taking), func(r bus.Received) bool {
			return slices.Contains(gone, r.Seq)
		})
		w.waiting = append(left, w.waiting...)
	}
	w.taking = nil
}

// drop forgets batch, which waits no more.
func (w *worker) drop(batch []bus.Received) {
	dropped := func(r bus.Received) bool {
		return slices.ContainsFunc(batch, func(b bus.Received) bool { return b.Seq == r.Seq })
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.taking = slices.DeleteFunc(slices.Clone(w.taking), dropped)
	w.waiting = slices.DeleteFunc(slices.Clone(w.waiting), dropped)
}

// hasNews reports whether the running turn should look at newer messages.
func (w *worker) hasNews() bool {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return w.asked(w.asker) > 0 && !w.alone && w.d.mode(w.key) == Steer
}

// turn begins a turn with batch, or resumes st if batch is nil, and runs it to its end. An error
// says that the store is lost: any other one ends the turn, and the chat is told.
func (w *worker) turn(ctx context.Context, st *session.Turn, batch []bus.Received) error {
	t := &turn{Turn: *st, d: w.d, w: w, began: w.d.opts.Now()}
	err := w.attempt(ctx, t, batch)
	if err == nil || store.IsLost(err) {
		return err
	}
	w.d.logger(&t.Turn).ErrorContext(ctx, "turn failed", "err", err)
	if err = t.refuse(ctx, batch, sayBroken); err != nil && !store.IsLost(err) {
		err = t.abandon(ctx, batch, err)
	}
	return err
}

// abandon ends a turn that can't even be ended with an answer, so that its chat goes on.
func (t *turn) abandon(ctx context.Context, batch []bus.Received, cause error) error {
	t.d.logger(&t.Turn).ErrorContext(ctx, "turn not ended in order", "err", cause)
	err := t.d.tx(ctx, func(tx *store.Tx) error {
		for _, r := range batch {
			if _, err := t.d.Inbox.Drop(tx, r.Seq); err != nil {
				return err
			}
		}
		if t.ID != 0 {
			err := t.d.sessions.End(tx, &t.Turn, session.Failed, t.d.opts.Now())
			if err == nil {
				err = t.d.Inbox.Finish(tx, t.ID)
			}
			if err != nil {
				return err
			}
		}
		return t.d.Outbox.Put(tx, bus.OutboundMessage{To: t.Address, ReplyTo: t.ReplyTo,
			Text: sayBroken, Answers: t.answers}, t.d.opts.Now())
	})
	if err != nil && !store.IsLost(err) { // it is found again by and by
		t.d.logger(&t.Turn).ErrorContext(ctx, "turn not ended", "err", err)
		return nil
	}
	return err
}

// attempt runs t to its end, or until it waits, is stopped or is left to the next process.
func (w *worker) attempt(ctx context.Context, t *turn, batch []bus.Received) error {
	d, outer := w.d, ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.clock = &clock{end: cancel, left: d.config().TurnTimeout}
	t.clock.goOn()
	defer t.clock.stand()
	d.mu.Lock()
	w.cancel = cancel
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		w.cancel = nil
		d.mu.Unlock()
	}()

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
		if again, e = d.sessions.RunningTurn(tx, t.Session); e != nil {
			return e
		}
		t.erased, e = d.sessions.Erased(tx, t.ID)
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
			t.w.taken(errPanic)
			err = t.refuse(ctx, batch, sayPanic)
		}
	}()
	return t.run(ctx, batch)
}

// errPanic reports that the turn has panicked.
var errPanic = errors.New("the turn has panicked")

// refuse tells the chat why t has failed, also if it had not even begun.
func (t *turn) refuse(ctx context.Context, batch []bus.Received, say string) error {
	if t.ID != 0 {
		return t.fail(ctx, say)
	}
	defer t.w.drop(batch)
	return t.d.tx(ctx, func(tx *store.Tx) error {
		waited := false
		for _, r := range batch {
			ok, err := t.d.Inbox.Answer(tx, r.Seq)
			if err != nil {
				return err
			}
			waited = waited || ok
		}
		if !waited {
			return nil // a command has dropped them
		}
		return t.deliverFailure(tx, t.outbound(say))
	})
}

// errGone reports that a message was dropped before its turn began, or is left to the next process.
var errGone = errors.New("message waits no more")

// A goneError is errGone with the messages that wait no more.
type goneError []int64

func (goneError) Error() string { return errGone.Error() }

func (goneError) Is(target error) bool { return target == errGone }

// begin writes the turn's first step: it takes its messages and puts them into the transcript. If
// that fails, they wait as before.
func (t *turn) begin(ctx context.Context, batch []bus.Received) (err error) {
	defer func() {
		if err != nil {
			t.w.taken(err)
		}
	}()
	d := t.d
	if slices.ContainsFunc(batch, isGuilty) {
		d.logger(&t.Turn).ErrorContext(ctx, "message given up: processes end with it",
			"seq", batch[0].Seq)
		return cmp.Or(t.refuse(ctx, batch, sayGaveUp), errGone)
	}
	if err := d.hand(ctx, batch); err != nil {
		return err
	}
	messages, r, err := t.loadMessages(ctx, batch)
	if err != nil {
		return err
	}
	fault.Point("perceived")
	if ctx.Err() != nil && d.isDraining() { // files may be missing only because of that
		return errGone
	}
	if !t.trigger.Origin.Standalone() {
		t.answers, t.w.unanswered = append(t.w.unanswered, t.answers...), nil
	}
	var begun session.Turn // t has none before it is committed
	gone := false
	// It has used nothing yet, and there is nothing for the router: t.tx would be for both.
	err = d.DB.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		ok, err := t.beginRun(tx)
		if gone = err == nil && !ok; err != nil || gone {
			return t.dropAll(tx, batch, err)
		}
		begun = t.Turn
		if err := t.writeFirst(tx, &begun, batch, messages); err != nil {
			return err
		}
		if err := r.touch(tx); err != nil {
			return err
		}
		return t.take(tx, &begun, batch)
	})
	if err != nil {
		return err
	}
	t.w.taken(nil)
	if gone {
		return errGone
	}
	t.Turn = begun
	d.opts.Logger.DebugContext(ctx, "turn begun", "session", t.Session, "turn", t.ID,
		"from", t.Address.String(), "seq", batch[0].Seq, "messages", len(batch))
	fault.Point("begun")
	t.w.prove(false)
	if movedFrom(&t.Turn, t.group, batch) != "" {
		d.background.Wake()
	}
	t.settleStyle(ctx)
	t.recall(messages...)
	return nil
}

// writeFirst writes the turn as begun, with its first messages. What has moved since the turn
// before moves with it.
func (t *turn) writeFirst(
	tx *store.Tx, begun *session.Turn, batch []bus.Received, messages []llm.Message,
) error {
	d, now, first := t.d, t.d.opts.Now(), batch[0].Message
	title := first.ChatTitle
	if first.Origin.Session != "" {
		title = first.Origin.Label
	}
	if o := t.trigger.Origin; o.Standalone() && o.Session != "" { // else its prompt grew with each
		if err := d.sessions.Reset(tx, t.Session, now); err != nil {
			return err
		}
	}
	if err := d.sessions.Begin(tx, begun, title, d.lease, now, messages...); err != nil {
		return err
	}
	if from := movedFrom(begun, t.group, batch); from != "" {
		if err := d.merger.Move(tx, t.Session, from, t.Scope); err != nil {
			return err
		}
	}
	if !begun.First || first.Before == "" || d.Jobs == nil {
		return nil
	}
	return d.Jobs.MoveChat(tx, bus.Address{Account: first.From.Account, Chat: first.Before},
		bus.Address{Account: first.From.Account, Chat: first.From.Chat})
}

// movedFrom returns the scope whose memory belongs to that of the turn t from now on, "" if there
// is none: a person was linked with another, or is known since; or a group has another name.
func movedFrom(t *session.Turn, group bool, batch []bus.Received) memory.Scope {
	if before := batch[0].Message.Before; t.First && group && before != "" {
		return memory.OfChat(bus.Address{Account: t.Address.Account, Chat: before})
	}
	return t.Moved
}
