package pool

import (
	"context"
	"sync/atomic"
	"time"

	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// signals wake the dispatching goroutine, and say whether it still goes round.
type signals struct {
	fatal chan error    // the first error that ends all
	due   chan struct{} // rung when a suspended turn is to be looked at
	beat  atomic.Int64  // when the dispatcher last went round, in nanoseconds
}

// Fatal yields the first error that ends the dispatcher.
func (s *signals) Fatal() <-chan error { return s.fatal }

// Fail reports an error that ends the dispatcher.
func (s *signals) Fail(err error) {
	select {
	case s.fatal <- err:
	default: // an earlier error does that already
	}
}

// DueC yields something when ReviewDue must be called.
func (s *signals) DueC() <-chan struct{} { return s.due }

// ring has ReviewDue called soon.
func (s *signals) ring() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// Beat notes that the dispatcher goes round.
func (s *signals) Beat(now time.Time) { s.beat.Store(now.UnixNano()) }

// LastBeat returns when the dispatcher last went round; zero before it does at all.
func (s *signals) LastBeat() time.Time {
	if at := s.beat.Load(); at > 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// tables read and write what is stored of sessions.
type tables struct {
	env       *turn.Env
	sessions  session.Store
	questions question.Store
}

// tx runs fn in a transaction. A write that has begun is finished even while the process ends.
func (t *tables) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return t.env.DB.Tx(context.WithoutCancel(ctx), fn)
}

// waits returns the open questions by their turn. A turn whose question can't be read waits no
// longer: it ends, and tells the chat.
func (t *tables) waits(ctx context.Context) (map[int64]question.Question, error) {
	list, err := t.questions.ListOpen(t.env.DB.Read(ctx))
	_, err = t.env.DB.Mend(ctx, t.env.Logger, err, t.questions.SetAside)
	waits := make(map[int64]question.Question, len(list))
	for _, q := range list {
		waits[q.Turn] = q
	}
	return waits, err
}

// Waiting returns the next messages of the inbox after one. Unreadable messages are set aside.
func (t *tables) Waiting(work context.Context, after int64) ([]bus.Received, error) {
	list, err := t.env.Inbox.Waiting(t.env.DB.Read(work), after)
	_, err = t.env.DB.Mend(work, t.env.Logger, err, t.env.Inbox.SetAside)
	return list, err
}

// runningTurns returns the turns that have not ended. A turn whose address can't be read gets the
// address of its session.
func (t *tables) runningTurns(work context.Context) ([]session.Turn, error) {
	turns, err := t.sessions.RunningTurns(t.env.DB.Read(work))
	n, err := t.env.DB.Mend(work, t.env.Logger, err, t.sessions.Mend)
	if err != nil || n == 0 {
		return turns, err
	}
	return t.sessions.RunningTurns(t.env.DB.Read(work))
}
