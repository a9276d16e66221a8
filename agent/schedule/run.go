package schedule

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"gateway/store"
	"gateway/store/plaintext"
)

// Limits of the texts of a run, in bytes.
const (
	maxSaid  = 2000
	maxError = 500
)

// backoff is the delay before each retry of a run.
var backoff = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

const runColumns = "r.id, r.job, r.due_ms, r.state, r.attempts, r.try_ms, r.late, r.missed, " +
	"r.started_ms, r.ended_ms, r.said, r.error"

// runFields returns the variables for the runColumns of a row, and a function that makes a Run of
// them.
func runFields() (into []any, made func() Run) {
	var r Run
	var due, try, started, ended int64
	into = []any{&r.ID, &r.Job, &due, &r.State, &r.Attempts, &try, &r.Late, &r.missed, &started,
		&ended, &r.Said, &r.Error}
	return into, func() Run {
		r.Due, r.Retry = fromMillis(due), fromMillis(try)
		r.Started, r.Ended = fromMillis(started), fromMillis(ended)
		return r
	}
}

// Runs returns the newest runs of a job, at most 100, the newest first.
func Runs(q store.Queryer, job int64) ([]Run, error) {
	read := func(scan store.Scan, r *Run) error {
		into, made := runFields()
		err := scan(into...)
		*r = made()
		return err
	}
	return store.Collect(q, fmt.Sprintf("schedule: read runs of job %d", job), read,
		"SELECT "+runColumns+" FROM runs r WHERE r.job = $1 ORDER BY r.id DESC LIMIT 100", job)
}

// RunOf returns a run and its job, or [ErrNone]. A removed job exists until its run has
// ended.
func RunOf(q store.Queryer, run int64) (Job, Run, error) {
	into, made := runFields()
	j, err := scanJob(q.QueryRow("SELECT "+jobColumns+", "+runColumns+
		" FROM runs r JOIN jobs j ON j.id = r.job WHERE r.id = $1", run).Scan, make(zoneCache), into...)
	if errors.Is(err, sql.ErrNoRows) {
		return Job{}, Run{}, ErrNone
	}
	return j, made(), store.Wrap(err, "schedule: read run %d", run)
}

// BeginRun records that a turn works on a run. It returns false if the run must not begin: it
// was erased, or skipped because its job was paused or removed.
func BeginRun(tx *store.Tx, run int64, now time.Time) (bool, error) {
	n, err := tx.Exec(`UPDATE runs SET state = 'running', started_ms = $2
		WHERE id = $1 AND state = 'waiting' AND try_ms = 0`, run, toMillis(now))
	return n > 0, store.Wrap(err, "schedule: begin run %d", run)
}

// FinishRun records that a run has succeeded, with the beginning of its answer. Like StopRun and
// FailRun, it does nothing for a run that has ended or was erased.
func FinishRun(tx *store.Tx, run int64, said Answer, now time.Time) error {
	said.Text = plaintext.Clip(strings.TrimSpace(said.Text), maxSaid)
	return endRun(tx, run, Succeeded, said, "", now)
}

// StopRun records that somebody has stopped a run.
func StopRun(tx *store.Tx, run int64, now time.Time) error {
	return endRun(tx, run, Stopped, Answer{}, "", now)
}

// RetryRun ends an attempt that something else has interrupted, and starts the next one at once.
// There is no next attempt if the job was paused or removed.
func RetryRun(tx *store.Tx, run int64, now time.Time) error {
	n, err := tx.Exec(`UPDATE runs SET state = 'waiting', try_ms = $2
		WHERE id = $1 AND state = 'running'
			AND job IN (SELECT id FROM jobs WHERE state IN ('active', 'ended'))`, run, toMillis(now))
	if err != nil {
		return fmt.Errorf("schedule: run %d again: %w", run, err)
	}
	if n == 0 {
		return StopRun(tx, run, now)
	}
	return nil
}

func endRun(
	tx *store.Tx, run int64, as RunState, said Answer, reason string, now time.Time,
) error {
	var job int64
	err := tx.QueryRow(`UPDATE runs SET state = $2, said = $3, error = $4, try_ms = 0, ended_ms = $5,
			tainted = $6, rights = $7
		WHERE id = $1 AND state IN ('waiting', 'running') RETURNING job`,
		run, string(as), said.Text, reason, toMillis(now), said.Foreign,
		string(said.Rights)).Scan(&job)
	if err != nil {
		return store.Wrap(store.Optional(err), "schedule: end run %d", run)
	}
	return deleteRemoved(tx, job)
}

// FailRun records that an attempt of a run has failed. Retries follow after 1, 5 and 15 minutes.
// dead reports that there are no more retries; the caller must then tell the people. A heartbeat
// has only one attempt, because another heartbeat follows. A job that was paused or removed is not
// retried either.
func FailRun(tx *store.Tx, run int64, reason string, now time.Time) (dead bool, err error) {
	j, r, err := RunOf(tx, run)
	if errors.Is(err, ErrNone) || err == nil && r.State != Waiting && r.State != Running {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	reason = plaintext.Clip(reason, maxError)
	again := j.Kind != Heartbeat && (j.State == Active || j.State == Ended)
	if !again || r.Attempts > len(backoff) {
		return true, endRun(tx, run, Failed, Answer{}, reason, now)
	}
	at := now.Add(backoff[max(r.Attempts, 1)-1])
	_, err = tx.Exec(`UPDATE runs SET state = 'waiting', try_ms = $2, error = $3 WHERE id = $1`,
		run, toMillis(at), reason)
	return false, store.Wrap(err, "schedule: fail run %d", run)
}

// Prune deletes up to 256 runs that ended before a time, and removed jobs without runs. It
// returns the number of deleted runs.
func Prune(tx *store.Tx, before time.Time) (int, error) {
	n, err := tx.Exec(`DELETE FROM runs WHERE id IN (SELECT id FROM runs
		WHERE ended_ms > 0 AND ended_ms < $1 ORDER BY ended_ms LIMIT 256)`, toMillis(before))
	if err == nil && n > 0 {
		_, err = tx.Exec(`DELETE FROM jobs WHERE state = 'ended' AND NOT EXISTS
			(SELECT 1 FROM runs WHERE job = jobs.id)`)
	}
	return int(n), store.Wrap(err, "schedule: prune")
}
