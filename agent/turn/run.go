// Package turn does the work on one answer. [Run] is a loop of model calls and tool calls. It
// writes each step to the session's transcript before the step takes effect, so that the turn can
// be resumed after a crash. The caller passes an [Env], a snapshot of [Settings] and a [Mailbox]
// with the messages that arrive during the turn. Run returns an [Outcome] and never calls back into
// the dispatcher.
//
// A turn that waits for a person or a sub-agent is suspended: its question is a row, and Run
// returns. When the question is decided, the caller runs the turn again. Messages that do not fit
// into the prompt become notes in the memory of the turn's scope.
package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"gateway/agent/observe"
	"gateway/agent/question"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A Mailbox holds the messages that arrive for a session while its turn runs.
type Mailbox interface {
	// Next returns the messages that join the running turn now.
	Next() []bus.Received

	// Claimed reports the end of a transaction that claimed the first messages, or those that Next
	// returned, if any. After an error the messages wait again unless they were dropped.
	Claimed(ctx context.Context, err error)

	// HasNews reports whether Next would return any message.
	HasNews() bool
}

// A Start describes a turn to begin or to resume.
type Start struct {
	Turn     session.Turn   // turn to resume; a new one has no ID
	Messages []bus.Received // messages that a new turn answers
	Numbered bool           // Messages were collected; number them for the model
	Lease    store.Lease    // lease of a new turn
	Settings *Settings

	// Unanswered holds the platform's ids of messages that an interrupted turn left unanswered.
	// This turn answers them, too.
	Unanswered []string

	// HeldCall ends the tool call that waited for an answer when the turn was suspended, or is nil.
	// The turn calls it unless the tool continues the call.
	HeldCall func()

	// ResetAt is the time of day after which the conversation begins anew, as the time since
	// midnight; nil: never.
	ResetAt *time.Duration
}

// An Outcome describes how a turn has returned.
type Outcome struct {
	State State
	Turn  session.Turn // its current state

	Question question.Question // question for which a suspended turn waits
	Cancel   func()            // ends the tool call that waits for the answer, if not nil
	Answers  []string          // platform's ids of the messages that it answers

	Unanswered []string      // platform's ids of messages that the next turn answers
	Refused    bool          // the first messages were answered without a turn
	Resume     *session.Turn // if not nil: only an earlier turn was stopped; resume this one
}

// A State says how a turn has returned.
type State int

// The states of a turn that has returned.
const (
	Done       State = iota // it has ended or never begun
	Suspended               // it waits for the answer to a question
	HandedOver              // it is left to the next process
)

// Run runs a turn until it ends, is suspended or is left to the next process. An error means that
// the store is lost. Any other error ends the turn and is reported to the chat.
func Run(ctx context.Context, env *Env, s *Start, mailbox Mailbox) (*Outcome, error) {
	t := newRunner(env, s, mailbox)
	out, err := t.attempt(ctx, s.Messages)
	if err != nil && !store.IsLost(err) {
		t.logger().ErrorContext(ctx, "turn failed", "err", err)
		err = t.refuse(ctx, s.Messages, SayBroken)
		if err != nil && !store.IsLost(err) {
			err = t.abandon(ctx, s.Messages, err)
		}
	}
	if t.round.wrote {
		env.Background.Wake()
	}
	out.Turn, out.Unanswered, out.Refused = t.Turn, t.unanswered, t.refused
	return out, err
}

// newRunner returns a runner for s. It is not inlined, because its frame would stay on the stack of
// each turn that waits for the model.
//
//go:noinline
func newRunner(env *Env, s *Start, mailbox Mailbox) *runner {
	t := assemble(&turn{Turn: s.Turn, env: env, mailbox: mailbox, settings: s.Settings,
		unanswered: s.Unanswered})
	t.lease, t.began, t.resetAt = s.Lease, env.Now(), s.ResetAt
	t.reader.numbered, t.round.heldCall = s.Numbered, s.HeldCall
	return t
}

// assemble returns a runner for t. Each part gets the parts that it uses.
func assemble(t *turn) *runner {
	costs := &costs{turn: t}
	preview := &preview{turn: t}
	conv := &conversation{turn: t, costs: costs, preview: preview}
	model := &modelCaller{turn: t, costs: costs, preview: preview, conv: conv}
	round := &toolRound{turn: t, costs: costs, preview: preview, conv: conv, model: model,
		permissions: &permissions{turn: t, costs: costs, conv: conv}}
	return &runner{turn: t, costs: costs, preview: preview, conv: conv, model: model,
		reader: &reader{turn: t, conv: conv}, round: round}
}

// attempt runs t until it returns. Its outcome has only the fields that depend on the reason.
func (t *runner) attempt(ctx context.Context, batch []bus.Received) (out *Outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.model.clock = &clock{end: cancel, left: t.settings.Timeout}
	t.model.clock.start()
	defer t.model.clock.stop()
	ctx, ended := t.observe(ctx, batch)
	err = t.recovering(ctx, batch)
	t.round.heldCall.end()
	t.preview.hide()
	ended(t.ending(err))
	out = new(Outcome)
	switch {
	case errors.Is(err, ErrGone):
		return out, nil // the messages were dropped
	case errors.Is(err, errSuspended):
		t.preview.showWait()
		t.First = false // the transcript now has more than the first messages
		out.State, out.Question, out.Cancel = Suspended, t.round.asked, t.round.cancelCall
		out.Answers = t.answers
		return out, nil
	case errors.Is(err, errDraining):
		out.State = HandedOver
		return out, t.costs.tx(ctx, func(tx *store.Tx) error { // only this process knows the usage
			return session.HandOver(tx, &t.Turn)
		})
	case errors.Is(err, session.ErrEnded): // ended by /stop
		t.preview.showEnd(true)
		out.Resume, err = t.stopped(ctx)
	}
	return out, err
}

// recovering runs t. A panic ends this turn and nothing else.
func (t *runner) recovering(ctx context.Context, batch []bus.Received) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.logger().ErrorContext(ctx, "turn panicked", "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()), "panics", t.env.Counters.Panics.Add(1))
			t.mailbox.Claimed(ctx, errPanic)
			err = t.refuse(ctx, batch, SayPanic)
		}
	}()
	return t.run(ctx, batch)
}

// errPanic reports that the turn has panicked.
var errPanic = errors.New("the turn has panicked")

// stopped writes the usage of a turn that was ended from outside. If the turn still runs, the stop
// was meant for the session's previous turn: then stopped returns the turn. If nobody
// has stopped it, its transcript lacks its messages. Then the turn fails, because it can't go on.
func (t *runner) stopped(ctx context.Context) (resume *session.Turn, err error) {
	var running *session.Turn
	err = t.costs.tx(ctx, func(tx *store.Tx) (err error) {
		if running, err = session.RunningTurn(tx, t.Session); err != nil {
			return err
		}
		if t.costs.erased, err = session.TurnErased(tx, t.ID); err != nil || t.costs.erased {
			return err
		}
		return t.round.addVersion(tx)
	})
	if err != nil || running == nil || running.ID != t.ID || running.Epoch != t.Epoch {
		return nil, err
	}
	if !errors.Is(context.Cause(ctx), ErrStopped) {
		t.logger().ErrorContext(ctx, "turn failed: its transcript has no messages")
		return nil, t.fail(ctx, SayBroken)
	}
	return running, nil
}

// refuse tells the chat why t has failed, even if t has not begun.
func (t *runner) refuse(ctx context.Context, batch []bus.Received, say string) error {
	if t.ID != 0 {
		return t.fail(ctx, say)
	}
	t.refused = true
	return t.env.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		waited := false
		for _, r := range batch {
			ok, err := t.env.Inbox.Answer(tx, r.Seq)
			if err != nil {
				return err
			}
			waited = waited || ok
		}
		if !waited {
			return nil // a command has dropped the messages
		}
		addUnanswered(t.turn)
		return t.deliverFailure(tx, t.preview.outbound(say))
	})
}

// abandon ends a turn that can't be ended with an answer, so that the chat is not blocked. If the
// failure can't be reported to the job or the agent that began the turn, only the chat reads it.
func (t *runner) abandon(ctx context.Context, batch []bus.Received, cause error) error {
	t.logger().ErrorContext(ctx, "turn not ended in order", "err", cause)
	out := bus.OutboundMessage{To: t.Address, ReplyTo: t.ReplyTo, Text: SayBroken, Answers: t.answers}
	err := t.abandonWith(ctx, batch, func(tx *store.Tx) error { return t.deliverFailure(tx, out) })
	if err != nil && !store.IsLost(err) {
		err = t.abandonWith(ctx, batch, func(tx *store.Tx) error {
			return t.env.Outbox.Put(tx, out, t.env.Now())
		})
	}
	if err != nil && !store.IsLost(err) { // recoverPending retries it later
		t.logger().ErrorContext(ctx, "turn not ended", "err", err)
		return nil
	}
	t.env.Inbox.Wake() // a sub-agent may have put its outcome into the inbox
	return err
}

// abandonWith ends a turn without an answer. report reports the failure in the same transaction.
func (t *runner) abandonWith(
	ctx context.Context, batch []bus.Received, report func(tx *store.Tx) error,
) error {
	return t.env.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		for _, r := range batch {
			if _, err := t.env.Inbox.Drop(tx, r.Seq); err != nil {
				return err
			}
		}
		if t.ID != 0 {
			err := session.EndTurn(tx, &t.Turn, session.Failed, t.env.Now())
			if err == nil {
				err = t.env.Inbox.Finish(tx, t.ID)
			}
			if err != nil {
				return err
			}
		}
		return report(tx)
	})
}

// logger returns the logger of t.
func (t *turn) logger() *slog.Logger {
	return t.env.Logger.With("session", t.Session, "turn", t.ID)
}

// observe reports to the observer that t begins with batch, or is resumed if batch is nil. It is
// not inlined for the same reason as newRunner.
//
//go:noinline
func (t *runner) observe(
	ctx context.Context, batch []bus.Received,
) (context.Context, func(observe.TurnEnd)) {
	var b observe.TurnBegin
	if len(batch) > 0 {
		b.Waited = t.began.Sub(batch[0].At)
		b.Kind = batch[0].Message.Origin.Kind
	}
	return t.env.Calls.Observer.Turn(ctx, b)
}

// ending describes how t has ended.
func (t *runner) ending(err error) observe.TurnEnd {
	e := observe.TurnEnd{State: t.ended}
	switch {
	case errors.Is(err, errSuspended), errors.Is(err, errDraining), errors.Is(err, ErrGone):
	case errors.Is(err, session.ErrEnded):
		e.State = session.Stopped
	default:
		e.Err = err
	}
	e.State = cmp.Or(e.State, session.Running)
	return e
}
