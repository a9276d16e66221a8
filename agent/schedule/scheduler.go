package schedule

import (
	"context"
	"log/slog"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// Options are the optional settings of a [Scheduler].
type Options struct {
	Store  Store
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default discards

	// Admit returns the role of a job's maker today. If it is not ok, the maker may have nothing
	// done any more: the job is paused. Default is the role that the job has.
	Admit func(q store.Queryer, j *Job) (role bus.Role, ok bool, err error)

	// Heartbeat is how often there is one; default never. Beats returns who wants one, and Open
	// reports, when it is due, whether there is still something to look after. Both are required
	// then.
	Heartbeat time.Duration
	Beats     func(ctx context.Context) ([]Beat, error)
	Open      func(of memory.Scope) bool
}

// A Scheduler starts what is due. It has the methods of its [Store].
type Scheduler struct{ Store }

// New returns a Scheduler, whose Run starts it.
func New(db *store.DB, inbox *bus.Inbox, opts *Options) *Scheduler { return &Scheduler{} }

// Run starts what is due until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error { return errLater }

// Wake has the scheduler look at once, after a commit that has changed jobs.
func (s *Scheduler) Wake() {}
