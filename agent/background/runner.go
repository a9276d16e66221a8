package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
	"gateway/store/fault"
)

// Intervals of a [Runner].
const (
	pollInterval = time.Minute // to find tasks that other processes have added
	firstRetry   = time.Minute // after the first failure; doubled after each further one
	maxRetry     = time.Hour
)

// A Handler does the tasks of a kind. Do must be safe for concurrent use.
type Handler interface {
	// Do does a task or part of it. After an error the Runner retries the task later, with the last
	// saved state.
	Do(ctx context.Context, t *Task) (Outcome, error)
}

// An Outcome is the result of [Handler.Do]. The zero value means that the task is done.
type Outcome struct {
	Text       string    // reply to the person who waits for the task; "": none
	ContinueAt time.Time // when to continue the task; zero: it is done
	State      []byte    // state from which to continue

	// Send, if there is one, is sent when the task ends, in the same transaction.
	Send *bus.OutboundMessage

	// Pause is how long the Runner waits before it runs the task again, if the task was added again
	// while it ran.
	Pause time.Duration
}

// A scoped handler also works with the files of other scopes than the task's.
type scoped interface {
	Handler
	// Scopes returns all scopes whose files the task uses.
	Scopes(t *Task) []memory.Scope
}

// A Runner does the tasks that are due: several concurrently, but those of one scope one after
// another. All its fields are required.
type Runner struct {
	DB       *store.DB
	Outbox   *bus.Outbox
	Memory   *memory.Memory
	Handlers map[Kind]Handler
	Eraser   *Eraser
	Idle     *IdleSweep // finds idle conversations
	Texts    Texts
	Parallel int // maximum number of concurrent tasks
	Now      func() time.Time
	Logger   *slog.Logger

	// CountUntil is the time until which each task is counted before it runs, so that a crash counts
	// against it. It is zero unless the last process has crashed.
	CountUntil time.Time

	tasks  Store
	wake   bus.Signal
	panics atomic.Int64
}

// NewRunner initialises r and returns it.
func NewRunner(r *Runner) *Runner {
	r.wake = bus.NewSignal()
	return r
}

// Add adds a task that is due immediately. After the transaction the caller must call
// [Runner.Wake].
func (r *Runner) Add(tx *store.Tx, t Task) error { return r.tasks.Put(tx, t, r.Now()) }

// Wake makes the Runner check for due tasks.
func (r *Runner) Wake() { r.wake.Ring() }

// Panics returns the number of tasks that have panicked.
func (r *Runner) Panics() int64 { return r.panics.Load() }

// Run does due tasks until ctx is done, and waits for those under way. An error means that the
// store is lost.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.Eraser.Settle(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	if err := r.Memory.SyncAll(ctx); err != nil && ctx.Err() == nil {
		r.Logger.WarnContext(ctx, "history could not be written to its files", "err", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	poll, due := time.NewTicker(pollInterval), time.NewTimer(pollInterval)
	defer poll.Stop()
	defer due.Stop()
	round := round{busy: make(map[memory.Scope]bool), ended: make(chan end)}
	defer func() {
		cancel()
		for range round.running {
			<-round.ended
		}
	}()
	for {
		now := r.Now().Round(0) // the wall clock, as in the table
		if err := r.replan(ctx, &round, now); err != nil {
			return err
		}
		if err := r.start(ctx, &round, now); err != nil {
			return err
		}
		wait, err := r.untilDue(ctx, now)
		if err != nil {
			return err
		}
		due.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case e := <-round.ended:
			round.running--
			if e.kind == Speak {
				round.speaking--
			}
			for _, scope := range e.scopes {
				delete(round.busy, scope)
			}
			if err := store.LogUnlessLost(ctx, r.Logger, "background task could not be ended",
				e.err); err != nil {
				return err
			}
		case <-r.wake:
		case <-due.C:
		case <-poll.C:
			err := store.LogUnlessLost(ctx, r.Logger, "idle conversations could not be compacted",
				r.Idle.add(ctx))
			if err != nil {
				return err
			}
			r.Wake()
		}
	}
}

// replan moves the tasks if the clock was set back since the last call, or before the first call
// perhaps. Otherwise they would wait until the clock shows the earlier time again.
func (r *Runner) replan(ctx context.Context, round *round, now time.Time) error {
	last := round.last
	round.last = now
	if last.IsZero() {
		return commit(ctx, r.DB, func(tx *store.Tx) error {
			return r.tasks.Limit(tx, now.Add(maxRetry))
		})
	}
	if !now.Before(last) {
		return nil
	}
	return commit(ctx, r.DB, func(tx *store.Tx) error { return r.tasks.SetBack(tx, last, now) })
}

// A round is Run's record of the tasks under way.
type round struct {
	last     time.Time // when tasks were last started
	running  int
	speaking int                   // how many of them make voice notes
	busy     map[memory.Scope]bool // scopes whose files they use
	ended    chan end
}

// An end reports that a task has ended and its scopes are free. An error is an error of the store.
type end struct {
	kind   Kind
	scopes []memory.Scope
	err    error
}

// untilDue returns how long to wait, from now on, for the next task. Tasks that are due already
// don't count: they are under way, or wait for another one to end.
func (r *Runner) untilDue(ctx context.Context, now time.Time) (time.Duration, error) {
	next, ok, err := r.tasks.Next(r.DB.Read(context.WithoutCancel(ctx)), now)
	if wait := next.Sub(now); ok && wait < pollInterval {
		return wait, err
	}
	return pollInterval, err
}

// start begins the tasks that are due now and for which there is room.
func (r *Runner) start(ctx context.Context, round *round, now time.Time) error {
	if round.running >= r.Parallel || ctx.Err() != nil {
		return nil
	}
	quiet := context.WithoutCancel(ctx)
	read := r.DB.Read(quiet)
	list, err := r.tasks.Due(read, now)
	n, err := r.DB.RepairRows(quiet, r.Logger, err, r.tasks.ClearNotice)
	if err == nil && n > 0 {
		list, err = r.tasks.Due(read, now)
	}
	if err != nil {
		return err
	}
	for _, t := range list {
		scopes := r.scopes(&t)
		isBusy := func(s memory.Scope) bool { return round.busy[s] }
		// Voice notes leave room for tasks of the memory: many chats may want a note at the same time,
		// and the speech API may be slow.
		full := round.running >= r.Parallel ||
			t.Kind == Speak && round.speaking >= max(r.Parallel/2, 1)
		if full || slices.ContainsFunc(scopes, isBusy) {
			continue
		}
		for _, s := range scopes {
			round.busy[s] = true
		}
		if round.running++; t.Kind == Speak {
			round.speaking++
		}
		go func() { round.ended <- end{t.Kind, scopes, r.do(ctx, &t)} }()
	}
	return nil
}

// scopes returns the scopes whose files a task uses. No other task may use them at the same time.
func (r *Runner) scopes(t *Task) []memory.Scope {
	if h, ok := r.Handlers[t.Kind].(scoped); ok {
		return h.Scopes(t)
	}
	return []memory.Scope{t.Scope}
}

// maxCrashes is the number of crashes after which a task is postponed, so that the gateway can do
// everything else. It is high, because a crash counts against all tasks under way.
const maxCrashes = 10

var errCrashes = errors.New("background: processes crash while the task runs")

// do does one task or postpones it. It returns only errors of the store.
func (r *Runner) do(ctx context.Context, t *Task) error {
	counted := r.Now().Before(r.CountUntil)
	if counted && t.Crashes >= maxCrashes {
		return r.postpone(ctx, t, errCrashes)
	}
	if counted {
		err := r.DB.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) error {
			return r.tasks.MarkStarted(tx, t)
		})
		if err != nil {
			return err
		}
	}
	o, err := r.handle(ctx, t)
	switch gone := ctx.Err() != nil || errors.Is(err, ErrGone); {
	case gone && counted:
		return commit(ctx, r.DB, func(tx *store.Tx) error { return r.tasks.MarkLeft(tx, t) })
	case gone: // left to the next process
		return nil
	case err != nil:
		return r.postpone(ctx, t, err)
	}
	fault.Point("chored")
	return commit(ctx, r.DB, func(tx *store.Tx) error { return r.end(tx, t, o) })
}

// handle calls the handler for t. It returns a panic as an error. Otherwise the task would crash
// the process again at each start.
func (r *Runner) handle(ctx context.Context, t *Task) (o Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Logger.ErrorContext(ctx, "background task panicked", "kind", t.Kind, "scope", t.Scope,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()), "panics", r.panics.Add(1))
			err = errors.New("background: the handler panicked")
		}
	}()
	h, ok := r.Handlers[t.Kind]
	if !ok {
		r.Logger.ErrorContext(ctx, "background task of an unknown kind", "kind", t.Kind)
		return Outcome{}, nil
	}
	return h.Do(ctx, t)
}

// end stores the outcome of t.
func (r *Runner) end(tx *store.Tx, t *Task, o Outcome) error {
	notice, err := r.tasks.NoticeOf(tx, t)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err == nil && notice != nil && o.Text != "" {
		out := *notice
		out.Text = o.Text
		if err = r.Outbox.Put(tx, out, r.Now()); err == nil {
			err = r.tasks.MarkNotified(tx, t)
		}
	}
	if taken := t.Notice != nil && notice == nil; err == nil && o.Send != nil && !taken {
		err = r.Outbox.Put(tx, *o.Send, r.Now())
	}
	switch {
	case err != nil:
		return err
	case !o.ContinueAt.IsZero():
		return r.tasks.Continue(tx, t, o.State, o.ContinueAt)
	}
	return r.tasks.Done(tx, t, r.Now().Add(o.Pause))
}

// postpone postpones t after a failure. It tells the person who waits for t once.
func (r *Runner) postpone(ctx context.Context, t *Task, cause error) error {
	wait := min(firstRetry<<min(t.Attempts, 10), maxRetry)
	r.Logger.WarnContext(ctx, "background task postponed", "kind", t.Kind, "scope", t.Scope,
		"session", t.Session, "attempt", t.Attempts+1, "wait", wait, "err", cause)
	return commit(ctx, r.DB, func(tx *store.Tx) error {
		notice, err := r.tasks.NoticeOf(tx, t)
		if errors.Is(err, ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		if notice != nil && t.Attempts == 0 {
			out := *notice
			out.Text = "That has not worked yet. I will try again later. " + r.Texts.Explain(cause)
			if err := r.Outbox.Put(tx, out, r.Now()); err != nil {
				return err
			}
		}
		return r.tasks.Postpone(tx, t, r.Now().Add(wait))
	})
}
