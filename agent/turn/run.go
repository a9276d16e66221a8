// Package turn does the work on one answer. [Run] is a loop of model calls and tool calls. Every
// step is written to the session's transcript before its effects, so that after a crash the turn
// goes on where it was. It gets what it works with: an [Env], a snapshot of [Settings], and a
// [Mailbox] with the messages that come meanwhile. It returns an [Outcome], and calls nobody back.
//
// A turn that waits for somebody is suspended: its question is a row, and [Run] returns. Once the
// question is decided the turn is run again. What does not fit into the prompt becomes notes in the
// memory of the turn's scope.
package turn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/agent/question"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A Mailbox has the messages that come for a session while its turn runs.
type Mailbox interface {
	// Next returns the messages that the running turn takes in now. If files is false it returns none
	// while any of them has files: to fetch these would delay an answer that is ready.
	Next(files bool) []bus.Received

	// Claimed reports that a transaction of the turn is over. It has claimed the first messages, or
	// those that Next returned, if there are any. After an error those that are still there wait
	// again.
	Claimed(err error)

	// HasNews reports whether Next would return something.
	HasNews() bool
}

// A Start is what a turn begins with, or goes on with.
type Start struct {
	Turn     session.Turn   // that goes on; a new one has no ID
	Messages []bus.Received // that a new turn answers
	Numbered bool           // these were collected: the model sees them numbered
	Lease    store.Lease    // under which a new turn is written
	Settings *Settings

	// Unanswered are the platform's ids of messages that an interrupted turn has left: this one
	// answers them, too.
	Unanswered []string
}

// An Outcome is how a turn has returned.
type Outcome struct {
	State State
	Turn  session.Turn // as it is now

	Question question.Question // that the turn waits for, if it is suspended
	Answers  []string          // platform's ids of the messages that a suspended turn answers

	Unanswered []string      // platform's ids of messages that the next turn answers, too
	Refused    bool          // the first messages got an answer, and no turn
	Resume     *session.Turn // not nil: what was stopped was the turn before; this one goes on
}

// A State says how a turn has returned.
type State int

// The states of turns that have returned.
const (
	Done       State = iota // it has ended, or never begun
	Suspended               // it waits for the answer to a question
	HandedOver              // it is left to the next process
)

// Run runs a turn until it ends, waits for somebody or is left to the next process. An error says
// that the store is lost: any other error ends the turn, and the chat is told.
func Run(ctx context.Context, env *Env, s Start, mailbox Mailbox) (Outcome, error) {
	t := &runner{lease: s.Lease, began: env.Now()}
	t.turn = turn{Turn: s.Turn, env: env, mailbox: mailbox, settings: s.Settings,
		unanswered: s.Unanswered}
	t.numbered = s.Numbered
	out, err := t.attempt(ctx, s.Messages)
	if err != nil && !store.IsLost(err) {
		t.logger().ErrorContext(ctx, "turn failed", "err", err)
		err = t.refuse(ctx, s.Messages, SayBroken)
		if err != nil && !store.IsLost(err) {
			err = t.abandon(ctx, s.Messages, err)
		}
	}
	out.Turn, out.Unanswered, out.Refused = t.Turn, t.unanswered, t.refused
	return out, err
}

// attempt runs t until it returns.
func (t *runner) attempt(ctx context.Context, batch []bus.Received) (out Outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.clock = &clock{end: cancel, left: t.settings.Timeout}
	t.clock.goOn()
	defer t.clock.stand()
	ctx, ended := t.env.Calls.Observer.Turn(ctx, t.beginning(batch))
	err = t.recovering(ctx, batch)
	t.hide()
	ended(t.ending(err))
	switch {
	case errors.Is(err, ErrGone):
		return out, nil // dropped before it began
	case errors.Is(err, errSuspended):
		t.showEnd(true)
		t.First = false // there is more in the transcript by now than what it began with
		return Outcome{State: Suspended, Question: t.asked, Answers: t.answers}, nil
	case errors.Is(err, errDraining):
		out.State = HandedOver
		return out, t.tx(ctx, func(tx *store.Tx) error { // nobody else knows what it has used
			return t.env.sessions.HandOver(tx, &t.Turn)
		})
	case errors.Is(err, session.ErrEnded): // by /stop
		t.showEnd(true)
		out.Resume, err = t.stopped(ctx)
		return out, err
	}
	return out, err
}

// stopped writes what a turn has used that others have ended. It returns the turn itself if it
// still runs, because the stop was meant for the turn before it in the session.
func (t *runner) stopped(ctx context.Context) (resume *session.Turn, err error) {
	var running *session.Turn
	err = t.tx(ctx, func(tx *store.Tx) (err error) {
		if running, err = t.env.sessions.RunningTurn(tx, t.Session); err != nil {
			return err
		}
		t.erased, err = t.env.sessions.Erased(tx, t.ID)
		return err
	})
	if err != nil || running == nil || running.ID != t.ID || running.Epoch != t.Epoch {
		return nil, err
	}
	return running, nil
}

// logger returns the log of t.
func (t *turn) logger() *slog.Logger {
	return t.env.Logger.With("session", t.Session, "turn", t.ID)
}

// beginning describes t, which is to answer batch, or to go on if that is nil.
func (t *runner) beginning(batch []bus.Received) observe.TurnBegin {
	b := observe.TurnBegin{Session: t.Session, Turn: t.ID, Account: t.Address.Account,
		Attempt: t.Attempts}
	if len(batch) > 0 {
		b.Waited = t.began.Sub(batch[0].At)
		b.Kind = batch[0].Message.Origin.Kind
	}
	return b
}

// ending describes how t has ended.
func (t *runner) ending(err error) observe.TurnEnd {
	e := observe.TurnEnd{Turn: t.ID, State: t.ended, Rounds: t.rounds}
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

// toolEnd describes how the call c has ended.
func (t *round) toolEnd(c llm.ToolCall, d done, err error) observe.ToolEnd {
	_, unknown := t.tools.Lookup(c.Name)
	return observe.ToolEnd{Known: unknown == nil, Waits: d.asks != nil || d.result.Wait != nil,
		Err: err}
}
