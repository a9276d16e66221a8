-- The tables of this package as all migrations leave them.

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
	created_ms BIGINT NOT NULL,
	shut_out   INTEGER NOT NULL DEFAULT 0 -- 1: until its maker may use the agent again
);
CREATE INDEX jobs_due ON jobs (next_ms) WHERE state = 'active' AND next_ms > 0;
CREATE INDEX jobs_scope ON jobs (scope);
CREATE INDEX jobs_person ON jobs (person);
CREATE INDEX jobs_chat ON jobs (account, chat);
CREATE UNIQUE INDEX jobs_heartbeat ON jobs (scope) WHERE kind = 'heartbeat';
CREATE INDEX jobs_shut_out ON jobs (id) WHERE shut_out = 1;

CREATE TABLE runs (
	id         IDENTITY PRIMARY KEY,
	job        BIGINT NOT NULL,
	due_ms     BIGINT NOT NULL,
	state      TEXT NOT NULL, -- waiting, running, done, failed, stopped or skipped
	attempts   INTEGER NOT NULL DEFAULT 0, -- whose message was put into the inbox
	try_ms     BIGINT NOT NULL DEFAULT 0, -- time of the next one's message; 0: it is there, or never
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
);
