package schedule

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gateway/memory"
	"gateway/store"
	"gateway/store/plaintext"
)

// Store reads and writes jobs, their runs, and time zones. It has settings but no state;
// the zero value is ready for use.
type Store struct {
	MaxJobs  int            // unfinished jobs per person; default 50, negative for no limit
	MinEvery time.Duration  // least time between two runs of a job; default 1 min
	Location *time.Location // default time zone; UTC if nil
}

// Limits of a job.
const (
	maxName = 64   // characters
	maxText = 8000 // bytes
)

// A RefusedError explains to people why a job is refused.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

// MinInterval returns the least time between two runs of a job.
func (s Store) MinInterval() time.Duration { return cmp.Or(s.MinEvery, time.Minute) }

// check returns an error if a job must not be written.
func (s Store) check(j *Job, now time.Time) error {
	name := strings.TrimSpace(j.Name)
	j.Text = strings.TrimSpace(j.Text)
	// Ordinary names have invisible characters, too, such as joiners and spaces without a break.
	j.Name = cmp.Or(plaintext.OneLine(name), plaintext.Line(j.Text, 40))
	switch n := utf8.RuneCountInString(j.Name); {
	case j.Text == "":
		return refuse("there is nothing to do: the text is empty")
	case len(j.Text) > maxText:
		return refuse("the text has %d bytes, want %d at most; put what it needs into a file and "+
			"name that", len(j.Text), maxText)
	case n > maxName:
		return refuse("the name has %d characters, want %d at most", n, maxName)
	case strings.ContainsFunc(name, unicode.IsControl):
		return refuse("the name must be one line of plain text")
	case j.When.IsZero():
		return refuse("it has no time: want one of at, every and cron")
	case j.When.tooOften(now, s.MinInterval()):
		return refuse("that is too often: between two runs want %s at least", span(s.MinInterval()))
	}
	if j.When.loc != nil && j.When.loc != time.Local {
		if _, err := time.LoadLocation(j.When.loc.String()); err != nil {
			return refuse("the zone %s has no name that can be written down", j.When.loc)
		}
	}
	return nil
}

// Add writes a new job and sets its ID, State, Next and Created. If the job has no name,
// it gets the beginning of its text. Add returns a [RefusedError] for an invalid job.
func (s Store) Add(tx *store.Tx, j *Job, now time.Time) error {
	if err := s.check(j, now); err != nil {
		return err
	}
	if err := s.checkCount(tx, j); err != nil {
		return err
	}
	next, ok := j.When.Next(now)
	if !ok {
		return refuse("%s is over", j.When)
	}
	j.State, j.PauseReason, j.Next, j.Created = Active, "", next, now
	return insertJob(tx, j)
}

// checkCount returns an error if j's creator may have no further unfinished job.
func (s Store) checkCount(q store.Queryer, j *Job) error {
	n, most, err := s.Count(q, j)
	if err == nil && most >= 0 && n >= most {
		err = refuse("there are %d jobs, and more are not allowed; remove one first", n)
	}
	return err
}

// Count returns the number of unfinished jobs of j's creator, and the limit, negative for
// none. Unknown creators in a scope count together.
func (s Store) Count(q store.Queryer, j *Job) (n, most int, err error) {
	err = q.QueryRow(`SELECT count(*) FROM jobs WHERE person = $1 AND ($1 > 0 OR scope = $2)
		AND state IN ('active', 'paused') AND kind <> 'heartbeat'`,
		j.Person, string(j.Scope)).Scan(&n)
	return n, cmp.Or(s.MaxJobs, 50), store.Wrap(err, "schedule: count jobs")
}

func insertJob(tx *store.Tx, j *Job) error {
	rule, err := j.When.encode()
	if err != nil {
		return fmt.Errorf("schedule: add job: %w", err)
	}
	sender, err := json.Marshal(j.Sender)
	if err != nil {
		return fmt.Errorf("schedule: add job: %w", err)
	}
	err = tx.QueryRow(`INSERT INTO jobs (name, kind, text, rule, account, chat, thread, sender,
			person, role, in_group, title, scope, own, state, why, next_ms, created_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, '', $16, $17)
		RETURNING id`, j.Name, string(j.Kind), j.Text, rule, j.To.Account, j.To.Chat, j.To.Thread,
		string(sender), j.Person, string(j.Role), j.Group, j.Title, string(j.Scope),
		j.OwnSession, string(j.State), toMillis(j.Next), toMillis(j.Created)).Scan(&j.ID)
	return store.Wrap(err, "schedule: add job")
}

// toMillis converts a time for the database: Unix milliseconds, 0 for the zero time.
func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fromMillis is the reverse of toMillis.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

const jobColumns = "j.id, j.name, j.kind, j.text, j.rule, j.account, j.chat, j.thread, j.sender, " +
	"j.person, j.role, j.in_group, j.title, j.scope, j.own, j.state, j.why, j.next_ms, j.created_ms"

// Find returns a job, or [ErrNone].
func Find(q store.Queryer, id int64) (Job, error) {
	list, err := jobs(q, "j.id = $1 AND j.state <> 'removed'", id)
	if err == nil && len(list) == 0 {
		err = ErrNone
	}
	if err != nil {
		return Job{}, err
	}
	return list[0], nil
}

// A Filter selects jobs. The zero value selects all unfinished jobs. Heartbeats are never
// selected.
type Filter struct {
	Scope memory.Scope
	Over  bool // include finished jobs
}

// List returns jobs ordered by their next time; those without one come last.
func List(q store.Queryer, f Filter) ([]Job, error) {
	return jobs(q, `j.kind <> 'heartbeat' AND ($1 = '' OR j.scope = $1)
			AND (j.state IN ('active', 'paused') OR $2 = 1 AND j.state = 'ended')
		ORDER BY j.state, j.next_ms, j.id`, string(f.Scope), f.Over)
}

// jobs returns the jobs j for which a condition holds. The condition may end with an order and a
// limit.
func jobs(q store.Queryer, condition string, args ...any) ([]Job, error) {
	zones := make(zoneCache)
	return store.Collect(q, "schedule: read jobs", func(scan store.Scan, j *Job) (err error) {
		*j, err = scanJob(scan, zones)
		return err
	}, "SELECT "+jobColumns+" FROM jobs j WHERE "+condition, args...)
}

// scanJob reads a row with jobColumns and additional columns.
func scanJob(scan func(...any) error, zones zoneCache, more ...any) (j Job, err error) {
	var rule string
	var sender []byte
	var next, created int64
	err = scan(append([]any{&j.ID, &j.Name, &j.Kind, &j.Text, &rule, &j.To.Account, &j.To.Chat,
		&j.To.Thread, &sender, &j.Person, &j.Role, &j.Group, &j.Title, &j.Scope, &j.OwnSession,
		&j.State, &j.PauseReason, &next, &created}, more...)...)
	if err != nil {
		return j, err
	}
	j.Next, j.Created = fromMillis(next), fromMillis(created)
	// A stored time may be unreadable because its zone no longer exists, and a row may be damaged.
	// Such a job has no times and is paused when it is due. It must not prevent reading the others.
	if j.When, err = zones.decode(rule); err != nil {
		j.When = When{}
	}
	if json.Unmarshal(sender, &j.Sender) != nil {
		j.When, j.orphan = When{}, true
	}
	return j, nil
}

// Change updates the name, text, time, kind, session and role of a job. A finished job
// starts again if it has a further time. A run in progress continues unchanged.
func (s Store) Change(tx *store.Tx, j *Job, now time.Time) error {
	if err := s.check(j, now); err != nil {
		return err
	}
	old, err := Find(tx, j.ID)
	if err != nil {
		return err
	}
	rule, err := j.When.encode()
	if err != nil {
		return fmt.Errorf("schedule: change job %d: %w", j.ID, err)
	}
	was, err := old.When.encode()
	if err != nil {
		return fmt.Errorf("schedule: change job %d: %w", j.ID, err)
	}
	if rule == was { // the rule is the same: keep the next time
		j.State, j.Next = old.State, old.Next
	} else if next, ok := j.When.Next(now); !ok {
		return refuse("%s is over", j.When)
	} else if j.State, j.Next = old.State, next; old.State == Ended {
		if err := s.checkCount(tx, &old); err != nil {
			return err
		}
		j.State = Active
	}
	_, err = tx.Exec(`UPDATE jobs SET name = $2, kind = $3, text = $4, rule = $5, own = $6,
		state = $7, next_ms = $8, role = $9 WHERE id = $1`, j.ID, j.Name, string(j.Kind), j.Text,
		rule, j.OwnSession, string(j.State), toMillis(j.Next), string(j.Role))
	return store.Wrap(err, "schedule: change job %d", j.ID)
}

// Pause stops a job from running until [Store.Resume]. A run in progress continues; a
// waiting one is skipped.
func (s Store) Pause(tx *store.Tx, id int64, why string, now time.Time) error {
	j, err := Find(tx, id)
	switch {
	case err != nil:
		return err
	case j.State == Ended:
		return ErrNoNextRun
	}
	if _, err := tx.Exec("UPDATE jobs SET state = 'paused', why = $2, shut_out = 0 WHERE id = $1", id,
		why); err != nil {
		return fmt.Errorf("schedule: pause job %d: %w", id, err)
	}
	return skipWaiting(tx, id, "the job was paused", now)
}

// skipWaiting ends the runs of a job that no turn has started.
func skipWaiting(tx *store.Tx, id int64, why string, now time.Time) error {
	_, err := tx.Exec(`UPDATE runs SET state = 'skipped', try_ms = 0, error = $2, ended_ms = $3
		WHERE job = $1 AND state = 'waiting'`, id, why, toMillis(now))
	return store.Wrap(err, "schedule: skip runs of job %d", id)
}

// Resume ends a pause. Runs that were due in the meantime are skipped. It returns [ErrNoNextRun]
// for a one-time job whose time has passed.
func (s Store) Resume(tx *store.Tx, id int64, now time.Time) error {
	j, err := Find(tx, id)
	switch {
	case err != nil:
		return err
	case j.State == Active:
		return nil
	}
	next, ok := j.When.Next(now)
	if !ok {
		return ErrNoNextRun
	}
	_, err = tx.Exec(`UPDATE jobs SET state = 'active', why = '', next_ms = $2, shut_out = 0
		WHERE id = $1`, id, toMillis(next))
	return store.Wrap(err, "schedule: resume job %d", id)
}

// Remove deletes a job. A run in progress continues, and the job is deleted when the run
// ends.
func (s Store) Remove(tx *store.Tx, id int64, now time.Time) error {
	if _, err := Find(tx, id); err != nil {
		return err
	}
	if err := skipWaiting(tx, id, "the job was removed", now); err != nil {
		return err
	}
	_, err := tx.Exec("UPDATE jobs SET state = 'removed', next_ms = 0 WHERE id = $1", id)
	if err != nil {
		return fmt.Errorf("schedule: remove job %d: %w", id, err)
	}
	return deleteRemoved(tx, id)
}

// deleteRemoved deletes a removed job that has no open run.
func deleteRemoved(tx *store.Tx, id int64) error {
	n, err := tx.Exec(`DELETE FROM jobs WHERE id = $1 AND state = 'removed' AND NOT EXISTS
		(SELECT 1 FROM runs WHERE job = $1 AND state IN ('waiting', 'running'))`, id)
	if err == nil && n > 0 {
		_, err = tx.Exec("DELETE FROM runs WHERE job = $1", id)
	}
	return store.Wrap(err, "schedule: remove job %d", id)
}

// RunNow runs a job in addition to its scheduled times. A pending retry starts at once.
// RunNow returns [ErrRunning] if a run is in progress. Call [Scheduler.Wake] after the
// commit.
func (s Store) RunNow(tx *store.Tx, id int64, now time.Time) error {
	if _, err := Find(tx, id); err != nil {
		return err
	}
	n, err := tx.Exec(`UPDATE runs SET try_ms = $2 WHERE job = $1 AND state = 'waiting'
		AND try_ms > 0`, id, toMillis(now))
	if err == nil && n == 0 {
		err = addRun(tx, id, now)
	}
	if err != nil && !errors.Is(err, ErrRunning) {
		return fmt.Errorf("schedule: run job %d: %w", id, err)
	}
	return err
}

// addRun writes a run that is due now, unless the job has an open run.
func addRun(tx *store.Tx, id int64, now time.Time) error {
	var one int
	err := tx.QueryRow("SELECT 1 FROM runs WHERE job = $1 AND state IN ('waiting', 'running')",
		id).Scan(&one)
	if err == nil {
		return ErrRunning
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	// The due time must be unique within the job, and a run with this time may have ended
	// already.
	for due := toMillis(now); ; due++ {
		n, err := tx.Exec(`INSERT INTO runs (job, due_ms, state, try_ms)
			VALUES ($1, $2, 'waiting', $3) ON CONFLICT (job, due_ms) DO NOTHING`,
			id, due, toMillis(now))
		if err != nil || n > 0 {
			return err
		}
	}
}
