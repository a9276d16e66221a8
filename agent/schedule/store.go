package schedule

import (
	"errors"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// Store reads and writes jobs, their runs, and the zones of people. It has no state but its
// settings, whose zero value is ready for use.
type Store struct {
	MaxJobs  int            // of a person, that are not over; default 50, negative for no limit
	MinEvery time.Duration  // least time between two runs of a job; default 1 min
	Location *time.Location // of who has set no zone; default UTC
}

var errLater = errors.New("schedule: not there yet")

// Add writes a new job and sets its ID, State, Next and Created. Its error may be one for people.
func (s Store) Add(tx *store.Tx, j *Job, now time.Time) error { return errLater }

// Get returns a job, or [ErrNone].
func (s Store) Get(q store.Queryer, id int64) (Job, error) { return Job{}, errLater }

// A Filter says which jobs are wanted; heartbeats never are. The zero value is all others that are
// not over.
type Filter struct {
	Scope  memory.Scope
	Person int64
	Over   bool // also those that have no further time
}

// List returns jobs, the one that is due next first, and those that are not due last.
func (s Store) List(q store.Queryer, f Filter) ([]Job, error) { return nil, errLater }

// Change writes the name, text, time, kind and session of a job anew. What runs goes on as it was.
func (s Store) Change(tx *store.Tx, j *Job, now time.Time) error { return errLater }

// Pause keeps a job from running until [Store.Resume]. What runs goes on; what only waits is
// skipped.
func (s Store) Pause(tx *store.Tx, id int64, why string, now time.Time) error { return errLater }

// Resume ends a pause. What was due meanwhile is not made up for.
func (s Store) Resume(tx *store.Tx, id int64, now time.Time) error { return errLater }

// Remove deletes a job. What runs goes on, and the last of it is deleted with its end.
func (s Store) Remove(tx *store.Tx, id int64, now time.Time) error { return errLater }

// RunNow makes a job run besides its times, or [ErrRunning]. [Scheduler.Wake] makes it at once.
func (s Store) RunNow(tx *store.Tx, id int64, now time.Time) error { return errLater }

// Runs returns the runs of a job, the newest first, 100 at most.
func (s Store) Runs(q store.Queryer, job int64) ([]Run, error) { return nil, errLater }

// RunOf returns a run and its job, or [ErrNone].
func (s Store) RunOf(q store.Queryer, run int64) (Job, Run, error) { return Job{}, Run{}, errLater }

// Begin notes that a turn works on a run. It reports false if the run must not begin: it was
// skipped, as its job was paused or removed meanwhile, or erased.
func (s Store) Begin(tx *store.Tx, run int64, now time.Time) (bool, error) { return false, errLater }

// Done notes that a run has ended well, and the beginning of what was said. A run that is over or
// erased stays so, here as with Stop and Fail.
func (s Store) Done(tx *store.Tx, run int64, said string, now time.Time) error { return errLater }

// Stop notes that somebody has stopped a run.
func (s Store) Stop(tx *store.Tx, run int64, now time.Time) error { return errLater }

// Fail notes that an attempt of a run has failed. The next one comes after 1, 5 and 15 minutes;
// dead reports that there is none, which the people are to be told. A heartbeat has one attempt
// only, and nobody need hear of it.
func (s Store) Fail(tx *store.Tx, run int64, reason string, now time.Time) (dead bool, err error) {
	return false, errLater
}

// Zone returns the zone that the people of a scope have set, nil if none.
func (s Store) Zone(q store.Queryer, of memory.Scope) (*time.Location, error) { return nil, errLater }

// SetZone sets the zone of a scope, by its IANA name. Jobs keep theirs.
func (s Store) SetZone(tx *store.Tx, of memory.Scope, name string) error { return errLater }

// MoveScope makes the jobs and the zone of a scope those of another one.
func (s Store) MoveScope(tx *store.Tx, from, to memory.Scope) error { return errLater }

// EraseScope deletes all jobs of a scope with their runs, and its zone.
func (s Store) EraseScope(tx *store.Tx, of memory.Scope) error { return errLater }

// EraseChat deletes all jobs whose outcome goes to a chat, all its threads together.
func (s Store) EraseChat(tx *store.Tx, a bus.Address) error { return errLater }

// MoveChat makes the jobs of a chat, all its threads together, those of another one.
func (s Store) MoveChat(tx *store.Tx, from, to bus.Address) error { return errLater }

// Prune deletes up to 256 runs that ended before a time, with the jobs that are over, and returns
// how many.
func (s Store) Prune(tx *store.Tx, before time.Time) (int, error) { return 0, errLater }

// A Beat is whom a heartbeat is for.
type Beat struct {
	Scope  memory.Scope
	To     bus.Address // gets what it has to say
	Sender bus.Sender
	Person int64
	Role   bus.Role
	Group  bool
	Title  string
}

// SetHeartbeat makes a beat come every so often, from now on if it is new.
func (s Store) SetHeartbeat(tx *store.Tx, b Beat, every time.Duration, now time.Time) error {
	return errLater
}
