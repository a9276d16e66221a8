package schedule

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
	"gateway/store/fault"
)

// Options are the optional settings of a [Scheduler].
type Options struct {
	Store  Store
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default discards

	// Admit returns the current role of a job's creator. If why is not "", the creator may no
	// longer use the agent for that reason, and the job is paused until that changes. With
	// WhyUnserved, what becomes due meanwhile starts late, as after downtime. By default the job
	// keeps its role.
	Admit func(q store.Queryer, j *Job) (role bus.Role, why string, err error)

	// Halted reports whether nothing may run. What becomes due meanwhile starts late, as after
	// downtime. By default everything may run.
	Halted func(q store.Queryer) (bool, error)

	// Heartbeat is the interval of heartbeats; default none. Heartbeats returns the people and
	// groups that want one. Open reports, when one is due, whether there is something to
	// check. Both are required if Heartbeat is set.
	Heartbeat  time.Duration
	Heartbeats func(ctx context.Context) ([]HeartbeatTarget, error)
	Open       func(of memory.Scope) bool
}

const (
	// poll is the interval at which the tables are read without another reason: other
	// processes may write to them, and the clock may change.
	poll = 2 * time.Second

	// heartbeatsEvery is the interval at which Heartbeats is called, unless heartbeats are more
	// frequent.
	heartbeatsEvery = time.Minute

	// lateAfter is the delay after which a run is late.
	lateAfter = 2 * time.Minute

	// maxOpen is the maximum number of open runs of one job: one that works, and one that waits for
	// the first or for a retry. Further due times are skipped.
	maxOpen = 2

	// batch is the number of jobs started in one transaction. The SQL statements contain the
	// same number.
	batch = 256
)

// A Scheduler starts jobs when they are due. It has the methods of its [Store]. Several
// schedulers may share a database. All methods but Run are safe for concurrent use.
type Scheduler struct {
	Store
	db       *store.DB
	inbox    *bus.Inbox
	opts     Options
	wake     bus.Signal
	lastSeen atomic.Int64 // time of the last check, Unix milliseconds

	// Used by Run only:
	last  time.Time // time of the last check
	asked time.Time // when Heartbeats was last called
	tried time.Time // when the pauses were last reviewed
}

// New returns a Scheduler.
func New(db *store.DB, inbox *bus.Inbox, opts *Options) *Scheduler {
	o := *cmp.Or(opts, new(Options))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Admit == nil {
		o.Admit = func(_ store.Queryer, j *Job) (bus.Role, string, error) { return j.Role, "", nil }
	}
	if o.Halted == nil {
		o.Halted = func(store.Queryer) (bool, error) { return false, nil }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Scheduler{Store: o.Store, db: db, inbox: inbox, opts: o, wake: bus.NewSignal()}
}

// Wake makes the scheduler check at once. Call it after a commit that has changed jobs.
func (s *Scheduler) Wake() { s.wake.Ring() }

// LastSeen returns the time of the scheduler's last check for due jobs, or zero before the first
// check. The scheduler checks every two seconds.
func (s *Scheduler) LastSeen() time.Time { return fromMillis(s.lastSeen.Load()) }

// Run starts due jobs until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		s.lastSeen.Store(toMillis(time.Now()))
		pause, err := s.checkDue(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		timer.Reset(pause)
	}
}

// checkDue starts all due jobs and retries, and returns the time until the next can be due.
func (s *Scheduler) checkDue(ctx context.Context) (time.Duration, error) {
	now := s.opts.Now().Round(0) // wall clock time, without the monotonic reading
	if s.last.IsZero() {
		if err := s.repair(ctx, now); err != nil {
			return 0, err
		}
	}
	if now.Before(s.last) || s.last.IsZero() {
		if err := s.replan(ctx, now); err != nil {
			return 0, err
		}
		s.asked, s.tried = time.Time{}, time.Time{}
	}
	s.last = now
	if err := s.updateHeartbeats(ctx, now); err != nil {
		return 0, err
	}
	if err := s.readmit(ctx, now); err != nil {
		return 0, err
	}
	if halted, err := s.opts.Halted(s.db.Read(ctx)); err != nil || halted {
		return poll, err
	}
	if err := s.startJobs(ctx, now); err != nil {
		return 0, err
	}
	if err := s.startRuns(ctx, now); err != nil {
		return 0, err
	}
	return s.pause(ctx, now)
}

// pause returns the time until the next job or retry is due.
func (s *Scheduler) pause(ctx context.Context, now time.Time) (time.Duration, error) {
	pause := poll
	for _, query := range []string{
		"SELECT min(next_ms) FROM jobs WHERE state = 'active' AND next_ms > 0",
		"SELECT min(try_ms) FROM runs WHERE state = 'waiting' AND try_ms > 0",
	} {
		var at sql.NullInt64
		if err := s.db.Read(ctx).QueryRow(query).Scan(&at); err != nil {
			return 0, fmt.Errorf("schedule: read what is due: %w", err)
		}
		if at.Valid {
			pause = min(pause, time.UnixMilli(at.Int64).Sub(now))
		}
	}
	return max(pause, 10*time.Millisecond), nil
}

// replan recalculates the times of all repeating jobs: at the start, because a new version
// may have other time zone rules, and after the clock was set back. A job that has run at
// a time does not run at that time again. Retries do not come later than they would from
// now on.
func (s *Scheduler) replan(ctx context.Context, now time.Time) error {
	err := s.db.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE runs SET try_ms = $1 WHERE state = 'waiting' AND try_ms > $1`,
			toMillis(now.Add(backoff[len(backoff)-1])))
		return err
	})
	if err != nil {
		return fmt.Errorf("schedule: plan anew: %w", err)
	}
	for after := int64(0); ; {
		list, err := jobs(s.db.Read(ctx), `j.state = 'active' AND j.next_ms > $1 AND j.id > $2
			ORDER BY j.id LIMIT 256`, toMillis(now), after)
		if err != nil {
			return err
		}
		moved := make(map[*Job]time.Time)
		for i := range list {
			j := &list[i]
			after = j.ID
			s.survive(ctx, func() {
				if next, ok := j.When.Next(now); ok && !j.When.Once() && !next.Equal(j.Next) {
					moved[j] = next
				}
			}, "job not planned anew: that panicked", "job", j.ID)
		}
		if len(moved) > 0 {
			err := s.db.Tx(ctx, func(tx *store.Tx) error {
				for j, next := range moved { // unless the job has another time by now
					_, err := tx.Exec(`UPDATE jobs SET next_ms = $3
						WHERE id = $1 AND state = 'active' AND next_ms = $2`,
						j.ID, toMillis(j.Next), toMillis(next))
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("schedule: plan anew: %w", err)
			}
			s.opts.Logger.InfoContext(ctx, "jobs planned anew", "jobs", len(moved))
		}
		if len(list) < batch {
			return nil
		}
	}
}

// HasHeartbeats reports whether heartbeats are configured.
func (s *Scheduler) HasHeartbeats() bool { return s.opts.Heartbeat > 0 }

// updateHeartbeats creates heartbeats, so that the people and groups that want one have one. It
// removes them if none are configured. One that nobody wants any more finds nothing to check.
func (s *Scheduler) updateHeartbeats(ctx context.Context, now time.Time) error {
	first := s.asked.IsZero()
	every := heartbeatsEvery
	if s.opts.Heartbeat > 0 {
		every = min(every, s.opts.Heartbeat)
	}
	if !first && now.Sub(s.asked) < every {
		return nil
	}
	s.asked = now
	if s.opts.Heartbeat <= 0 {
		if !first {
			return nil
		}
		return s.db.Tx(ctx, func(tx *store.Tx) error { // remove those of an earlier configuration
			return eraseJobs(tx, "SELECT id FROM jobs WHERE kind = 'heartbeat'")
		})
	}
	list, err := s.opts.Heartbeats(ctx)
	if err != nil { // an error with files must not stop other jobs
		s.opts.Logger.ErrorContext(ctx, "it is not known who wants a heartbeat, and those that are "+
			"known go on: see that the folder of the memory can be read", "err", err)
		return nil
	}
	return s.db.Tx(ctx, func(tx *store.Tx) error {
		for _, b := range list {
			if err := s.SetHeartbeat(tx, b, s.opts.Heartbeat, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// startJobs creates runs of the jobs that are due.
func (s *Scheduler) startJobs(ctx context.Context, now time.Time) error {
	for {
		due, err := jobs(s.db.Read(ctx), `j.state = 'active' AND j.next_ms > 0 AND j.next_ms <= $1
			ORDER BY j.next_ms LIMIT 256`, toMillis(now))
		if err != nil || len(due) == 0 {
			return err
		}
		wanted := make(map[int64]bool) // heartbeats with something to check
		var ids []int64
		for _, j := range due {
			ids = append(ids, j.ID)
			if j.Kind == Heartbeat {
				s.survive(ctx, func() {
					wanted[j.ID] = s.opts.Heartbeat > 0 && s.opts.Open(j.Scope)
				}, "heartbeat left out: the search for something to check panicked", "scope", j.Scope)
			}
		}
		claim := func(tx *store.Tx, id int64) ([]startedRun, error) {
			r, err := s.claim(tx, id, wanted[id], now)
			return r, store.Wrap(err, "schedule: start job %d", id)
		}
		err = s.start(ctx, ids, claim, func(tx *store.Tx, id int64) error {
			return s.Pause(tx, id, whyPanic, now)
		})
		if err != nil || len(due) < batch {
			return err
		}
	}
}

// startRuns puts the messages of due retries into the inbox, and those of runs that somebody has
// requested.
func (s *Scheduler) startRuns(ctx context.Context, now time.Time) error {
	for {
		due, err := store.Collect(s.db.Read(ctx), "schedule: read runs",
			func(scan store.Scan, id *int64) error { return scan(id) },
			`SELECT id FROM runs WHERE state = 'waiting' AND try_ms > 0
				AND try_ms <= $1 ORDER BY try_ms LIMIT 256`, toMillis(now))
		if err != nil || len(due) == 0 {
			return err
		}
		retry := func(tx *store.Tx, run int64) ([]startedRun, error) {
			r, err := s.retry(tx, run, now)
			return r, store.Wrap(err, "schedule: start run %d", run)
		}
		err = s.start(ctx, due, retry, func(tx *store.Tx, run int64) error {
			return endRun(tx, run, Failed, Answer{}, whyPanic, now)
		})
		if err != nil || len(due) < batch {
			return err
		}
	}
}

// startedRun is a run whose message was put into the inbox.
type startedRun struct {
	job, run int64
	attempt  int
	late     bool
}

// The stored reasons why a job is paused or a run has failed.
const (
	whyPanic      = "I failed when I wanted to start it: see the log"
	whyUnreadable = "it can't be read any more; set it up again"
)

// start calls one for each id in one transaction. If that panics, start uses a transaction for each
// id, and calls giveUp for those with which one panics again. Otherwise such a job would end the
// process again at each start.
func (s *Scheduler) start(ctx context.Context, ids []int64,
	one func(*store.Tx, int64) ([]startedRun, error), giveUp func(*store.Tx, int64) error,
) (err error) {
	together := func() { err = s.startTogether(ctx, ids, one) }
	if s.survive(ctx, together, "start of what is due panicked: try one after another") {
		return err
	}
	for i, id := range ids {
		alone := func() { err = s.startTogether(ctx, ids[i:i+1], one) }
		if !s.survive(ctx, alone, "start of a job or run panicked: give it up", "id", id) {
			err = s.db.Tx(ctx, func(tx *store.Tx) error { return giveUp(tx, id) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startTogether calls one for each id in one transaction, and notifies the inbox after the commit.
func (s *Scheduler) startTogether(
	ctx context.Context, ids []int64, one func(*store.Tx, int64) ([]startedRun, error),
) error {
	var list []startedRun
	err := s.db.Tx(ctx, func(tx *store.Tx) error {
		list = nil
		for _, id := range ids {
			r, err := one(tx, id)
			if err != nil {
				return err
			}
			list = append(list, r...)
		}
		return nil
	})
	if err != nil || len(list) == 0 {
		return err
	}
	fault.Point("scheduled")
	s.inbox.Wake()
	for _, r := range list {
		s.opts.Logger.InfoContext(ctx, "job due", "job", r.job, "run", r.run,
			"attempt", r.attempt, "late", r.late)
	}
	return nil
}

// survive calls f. If f panics, survive logs the panic with a message and attributes, and returns
// false.
func (s *Scheduler) survive(ctx context.Context, f func(), message string, attrs ...any) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			s.opts.Logger.ErrorContext(ctx, message, append(attrs, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))...)
		}
	}()
	f()
	return true
}

// claim creates a run of a job, if it is still due, and sets the job's next time. wanted
// has the heartbeats with something to check.
func (s *Scheduler) claim(
	tx *store.Tx, id int64, wanted bool, now time.Time,
) ([]startedRun, error) {
	list, err := jobs(tx, `j.id = $1 AND j.state = 'active' AND j.next_ms > 0 AND j.next_ms <= $2`,
		id, toMillis(now))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	j := &list[0]
	if j.When.IsZero() {
		return nil, s.Pause(tx, id, whyUnreadable, now)
	}
	role, why, err := s.opts.Admit(tx, j)
	if err != nil {
		return nil, err
	}
	if why == WhyUnserved && j.Kind != Heartbeat {
		return nil, pauseRefused(tx, id, why)
	}
	state := Active
	following := j.When.series()
	next, ok := following(now)
	if !ok {
		state, next = Ended, time.Time{}
	}
	if _, err := tx.Exec("UPDATE jobs SET state = $2, next_ms = $3 WHERE id = $1", id,
		string(state), toMillis(next)); err != nil {
		return nil, err
	}
	open := 0
	err = tx.QueryRow("SELECT count(*) FROM runs WHERE job = $1 AND state IN ('waiting', 'running')",
		id).Scan(&open)
	if err != nil {
		return nil, err
	}
	if j.Kind == Heartbeat && (!wanted || why != "" || open > 0) {
		return nil, nil // another heartbeat follows: record nothing
	}
	due := following.newest(j.Next, now)
	r := Run{Job: id, Due: due, State: Waiting, Late: now.Sub(due) > lateAfter,
		missed: due.After(j.Next)}
	switch {
	case why != "":
		r.State, r.Error = Skipped, why
	case open >= maxOpen:
		r.State, r.Error = Skipped, "earlier runs of the job were not over"
	}
	if ok, err := insertRun(tx, &r, now); err != nil || !ok {
		return nil, err // a run of that time exists if the clock was set back
	}
	if why != "" {
		return nil, pauseRefused(tx, id, why)
	}
	if r.State == Skipped {
		return nil, nil
	}
	return s.put(tx, j, &r, role, now)
}

// insertRun writes r and sets its ID. It returns false if the job already has a run for
// that time.
func insertRun(tx *store.Tx, r *Run, now time.Time) (bool, error) {
	ended := int64(0)
	if r.State == Skipped {
		ended = toMillis(now)
	}
	err := tx.QueryRow(`INSERT INTO runs (job, due_ms, state, late, missed, ended_ms, error)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (job, due_ms) DO NOTHING RETURNING id`,
		r.Job, toMillis(r.Due), string(r.State), r.Late, r.missed, ended,
		r.Error).Scan(&r.ID)
	return err == nil, store.Optional(err)
}

// retry puts the message of the next attempt of a run into the inbox, if it is still due.
func (s *Scheduler) retry(tx *store.Tx, run int64, now time.Time) ([]startedRun, error) {
	j, r, err := RunOf(tx, run)
	if errors.Is(err, ErrNone) {
		return nil, nil
	}
	if err != nil || r.State != Waiting || r.Retry.IsZero() || r.Retry.After(now) {
		return nil, err
	}
	if j.orphan {
		return nil, errors.Join(endRun(tx, run, Failed, Answer{}, whyUnreadable, now),
			s.Pause(tx, j.ID, whyUnreadable, now))
	}
	role, why, err := s.opts.Admit(tx, &j)
	if err != nil {
		return nil, err
	}
	if why == WhyUnserved {
		_, err = tx.Exec("UPDATE runs SET try_ms = $2 WHERE id = $1", run, toMillis(now.Add(backoff[0])))
		return nil, err
	}
	if why != "" {
		return nil, errors.Join(endRun(tx, run, Skipped, Answer{}, why, now), pauseRefused(tx, j.ID, why))
	}
	if r.Attempts == 0 { // requested by somebody while the gateway was down
		r.Late = now.Sub(r.Due) > lateAfter
	}
	return s.put(tx, &j, &r, role, now)
}

// put starts the next attempt of a run by putting its message into the inbox.
func (s *Scheduler) put(
	tx *store.Tx, j *Job, r *Run, role bus.Role, now time.Time,
) ([]startedRun, error) {
	r.Attempts++
	if _, err := tx.Exec("UPDATE runs SET attempts = $2, try_ms = 0, late = $3 WHERE id = $1", r.ID,
		r.Attempts, r.Late); err != nil {
		return nil, err
	}
	m, err := message(tx, j, r, role, now)
	if err != nil {
		return nil, err
	}
	if _, err := s.inbox.Put(tx, m, now); err != nil {
		return nil, err
	}
	return []startedRun{{j.ID, r.ID, r.Attempts, r.Late}}, nil
}
