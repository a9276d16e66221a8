package router

import (
	"context"
	"time"

	"gateway/bus"
)

// Moves knows the groups that have changed their ids. A stored message keeps the id to which it was
// addressed, because the ids of other messages belong to that id. So a group that has moved has two
// conversations with a worker each. Together they are one queue: a worker sends a message only when
// the other conversation has no older one.
type Moves interface {
	// OtherID returns the other id of a group that has changed its id, or "": the one before for
	// the present one, and the other way round. It must not block.
	OtherID(a bus.Address) string
}

// other returns the address of a conversation under the other id of its group. It returns false if
// the chat has only one id.
func (a *account) other(to bus.Address) (bus.Address, bool) {
	if a.moves == nil {
		return to, false
	}
	id := a.moves.OtherID(to)
	to.Chat = id
	return to, id != ""
}

// behind returns how long w must wait before it sends a message, because one with a lower id than
// the given one goes to the same place under the other id of the group. [worker.done] ends
// the wait.
func (w *worker) behind(ctx context.Context, id int64) time.Duration {
	other, ok := w.a.other(w.to)
	if !ok {
		return 0
	}
	first, err := w.firstTo(ctx, other)
	switch {
	case err != nil:
		w.r.log.ErrorContext(ctx, "outbox could not be read", "to", other.String(), "err", err)
		return firstRetry
	case first != nil && first.ID < id:
		return workerTime
	}
	return 0
}
