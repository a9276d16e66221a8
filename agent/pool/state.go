package pool

import (
	"context"
	"sync/atomic"
	"time"

	"gateway/agent/question"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/store"
)

// signals wake the dispatching goroutine and show whether it is alive.
type signals struct {
	fatal chan error    // the first fatal error
	due   chan struct{} // signalled when a suspended turn must be reviewed
	again chan struct{} // signalled when a message that is not in memory must be handed out
	beat  atomic.Int64  // when the dispatcher last ran its loop, in nanoseconds
}

func newSignals() signals {
	return signals{fatal: make(chan error, 1), due: make(chan struct{}, 1),
		again: make(chan struct{}, 1)}
}

// Fatal returns a channel with the first error that ends the dispatcher.
func (s *signals) Fatal() <-chan error { return s.fatal }

// Fail reports an error that ends the dispatcher.
func (s *signals) Fail(err error) {
	select {
	case s.fatal <- err:
	default: // an earlier error already ends it
	}
}

// DueC returns a channel that receives when ReviewDue must be called.
func (s *signals) DueC() <-chan struct{} { return s.due }

// AgainC returns a channel that receives when a waiting message has left the memory. The dispatcher
// must then hand out such messages again.
func (s *signals) AgainC() <-chan struct{} { return s.again }

// handOutAgain makes the dispatcher hand out soon the waiting messages that have left the memory.
func (s *signals) handOutAgain() {
	select {
	case s.again <- struct{}{}:
	default:
	}
}

// ring makes the dispatcher call ReviewDue soon.
func (s *signals) ring() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// Beat records that the dispatcher runs its loop.
func (s *signals) Beat(now time.Time) { s.beat.Store(now.UnixNano()) }

// LastBeat returns when the dispatcher last ran its loop, or the zero time if it never did.
func (s *signals) LastBeat() time.Time {
	if at := s.beat.Load(); at > 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// tables reads and writes the stored state of sessions.
type tables struct {
	env *turn.Env
}

// tx runs fn in a transaction. Once begun, the transaction is finished even if the process is
// stopping.
func (t *tables) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return t.env.DB.Tx(context.WithoutCancel(ctx), fn)
}

// waits returns the open questions by turn. A turn whose question can't be read stops waiting: it
// ends and tells the chat.
func (t *tables) waits(ctx context.Context) (map[int64]question.Question, error) {
	list, err := question.ListOpen(t.env.DB.Read(ctx))
	_, err = t.env.DB.RepairRows(ctx, t.env.Logger, err, question.SetAside)
	waits := make(map[int64]question.Question, len(list))
	for _, q := range list {
		waits[q.Turn] = q
	}
	return waits, err
}

// readable calls read and returns the messages that can be read. It sets the others aside.
func (t *tables) readable(
	work context.Context, read func(q store.Queryer) ([]bus.Received, error),
) ([]bus.Received, error) {
	list, err := read(t.env.DB.Read(work))
	_, err = t.env.DB.RepairRows(work, t.env.Logger, err, t.env.Inbox.SetAside)
	return list, err
}

// Waiting returns the next waiting messages after the given Seq that can be read.
func (t *tables) Waiting(work context.Context, after int64) ([]bus.Received, error) {
	return t.readable(work, func(q store.Queryer) ([]bus.Received, error) {
		return t.env.Inbox.Waiting(q, after)
	})
}
