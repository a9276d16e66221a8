// Package schedule starts the agent at set times, for reminders, tasks and heartbeats.
//
// A [Job] has a text and a schedule; a [Run] is one execution of it. [Store] reads and writes both.
// The main type, [Scheduler], creates a run when a job is due. One transaction writes the run,
// unique on its job and due time, puts its message into the inbox, and sets the job's next time.
// The process that writes the run starts it, so several processes may share a database. From then
// on a run is as durable as a message of a person. A turn claims it and reports the result, with
// [BeginRun] and [FinishRun], [FailRun] or [StopRun].
//
// Limits: a name has at most 64 characters, a text at most 8,000 bytes, and the last year is 2100.
// A job that has missed several runs runs once. Times are wall clock times (see [ParseCron]).
//
// Tables: jobs, runs, zones.
package schedule

import (
	"errors"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// Migration creates the tables of this package.
var Migration = store.Migration{Package: "schedule", Steps: []string{`
CREATE TABLE jobs (
	id         IDENTITY PRIMARY KEY,
	name       TEXT NOT NULL,
	kind       TEXT NOT NULL, -- task, reminder or heartbeat
	text       TEXT NOT NULL,
	rule       TEXT NOT NULL, -- When
	account    TEXT NOT NULL,
	chat       TEXT NOT NULL,
	thread     TEXT NOT NULL,
	sender     TEXT NOT NULL, -- bus.Sender
	person     BIGINT NOT NULL,
	role       TEXT NOT NULL,
	in_group   INTEGER NOT NULL, -- 1: more people than the sender read the chat
	title      TEXT NOT NULL,
	scope      TEXT NOT NULL,
	own        INTEGER NOT NULL, -- 1: it has a session of its own
	state      TEXT NOT NULL, -- active, paused, ended; removed: until its last run is over
	why        TEXT NOT NULL DEFAULT '', -- it is paused
	next_ms    BIGINT NOT NULL, -- 0: none
	created_ms BIGINT NOT NULL
);
CREATE INDEX jobs_due ON jobs (next_ms) WHERE state = 'active' AND next_ms > 0;
CREATE INDEX jobs_scope ON jobs (scope);
CREATE INDEX jobs_person ON jobs (person);
CREATE INDEX jobs_chat ON jobs (account, chat);
CREATE UNIQUE INDEX jobs_heartbeat ON jobs (scope) WHERE kind = 'heartbeat';

CREATE TABLE runs (
	id         IDENTITY PRIMARY KEY,
	job        BIGINT NOT NULL,
	due_ms     BIGINT NOT NULL,
	state      TEXT NOT NULL, -- waiting, running, done, failed, stopped or skipped
	attempts   INTEGER NOT NULL DEFAULT 0, -- whose message was put into the inbox
	try_ms     BIGINT NOT NULL DEFAULT 0, -- of the next one's message; 0: it is there, or never
	late       INTEGER NOT NULL DEFAULT 0,
	missed     INTEGER NOT NULL DEFAULT 0, -- 1: times before it were missed, too
	started_ms BIGINT NOT NULL DEFAULT 0,
	ended_ms   BIGINT NOT NULL DEFAULT 0,
	said       TEXT NOT NULL DEFAULT '',
	error      TEXT NOT NULL DEFAULT '',
	UNIQUE (job, due_ms)
);
CREATE INDEX runs_try ON runs (try_ms) WHERE state = 'waiting' AND try_ms > 0;
CREATE INDEX runs_open ON runs (job) WHERE state IN ('waiting', 'running');
CREATE INDEX runs_over ON runs (ended_ms) WHERE ended_ms > 0;

CREATE TABLE zones (
	scope TEXT PRIMARY KEY,
	zone  TEXT NOT NULL -- IANA name
);`, `
ALTER TABLE jobs ADD COLUMN shut_out INTEGER NOT NULL DEFAULT 0; -- 1: until its maker may again
UPDATE jobs SET shut_out = 1
	WHERE state = 'paused' AND why = 'who has set it up may not use me any more';
CREATE INDEX jobs_shut_out ON jobs (id) WHERE shut_out = 1;`, `
-- 1: its turn has read foreign text, so the next run must not trust what it said
ALTER TABLE runs ADD COLUMN tainted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN rights TEXT NOT NULL DEFAULT ''; -- Answer`}}

// A Kind is the purpose of a job.
type Kind string

// The kinds of jobs.
const (
	Task      Kind = "task"     // the agent performs a task
	Reminder  Kind = "reminder" // the agent reminds people of something
	Heartbeat Kind = "heartbeat"
)

// A State is the state of a job.
type State string

// The states of a job.
const (
	Active State = "active"
	Paused State = "paused"
	Ended  State = "ended" // no further times
)

// A RunState is the state of a run.
type RunState string

// The states of a run.
const (
	Waiting   RunState = "waiting" // waiting for a turn, or for the time of the next attempt
	Running   RunState = "running"
	Succeeded RunState = "done"
	Failed    RunState = "failed" // without a further retry; people were told
	Stopped   RunState = "stopped"
	Skipped   RunState = "skipped" // never started; Error has the reason
)

// A Job is something that the agent does at scheduled times.
type Job struct {
	ID          int64
	Name        string // one line
	Kind        Kind
	Text        string // the task or the reminder
	When        When
	To          bus.Address // the conversation that gets the outcome
	Sender      bus.Sender  // its creator
	Person      int64       // its creator across all platforms; 0: unknown
	Role        bus.Role    // role of its creator at that time
	Group       bool        // other people read the conversation, too
	Title       string      // title of the group
	Scope       memory.Scope
	OwnSession  bool // runs use a session of their own
	State       State
	PauseReason string    // reason of the pause
	Next        time.Time // next run; zero if there is none
	Created     time.Time

	orphan bool // its creator can't be read
}

// Session returns the key of the job's own session, or the zero key if it runs in the
// session of its conversation.
func (j *Job) Session() session.Key {
	if !j.OwnSession {
		return session.Key{}
	}
	return session.KeyOf(j.To).OfJob(j.ID)
}

// MayChange reports whether somebody may change j: its creator, or an admin, who writes in
// a conversation.
func (j *Job) MayChange(in bus.Address, by bus.Sender, person int64, role bus.Role) bool {
	return role.AtLeast(bus.Admin) || j.Person != 0 && j.Person == person ||
		j.To.Account == in.Account && j.Sender.ID == by.ID
}

// A Run is one execution of a job.
type Run struct {
	ID       int64
	Job      int64
	Due      time.Time
	State    RunState
	Attempts int       // attempts started so far, at most 4
	Retry    time.Time // time of the next attempt, if one is scheduled
	Late     bool      // it started more than two minutes after Due
	Started  time.Time // start of the newest attempt; zero if there was none
	Ended    time.Time // zero until the run has ended
	Said     string    // the beginning of the answer
	Error    string    // of the last failed attempt, or the reason of a skip

	missed bool // earlier times were missed, too
}

// An Answer is what a run has said.
type Answer struct {
	Text    string
	Foreign bool     // its turn has read foreign text, which may have dictated the answer
	Rights  bus.Role // the least role of people whose words that turn has overheard, or ""
}

// Reasons why a change of a job is refused. People read the texts.
var (
	ErrNone      = errors.New("there is no such job")
	ErrRunning   = errors.New("it is running already")
	ErrNoNextRun = errors.New("it has no further time; give it a new one")
)
