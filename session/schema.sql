-- The tables of this package as all migrations leave them.

CREATE TABLE sessions (
	key          TEXT PRIMARY KEY, -- Key.String
	account      TEXT NOT NULL,
	chat         TEXT NOT NULL,
	thread       TEXT NOT NULL,
	title        TEXT NOT NULL,
	queue_mode   TEXT NOT NULL DEFAULT '', -- '' is the configured one
	turns        BIGINT NOT NULL DEFAULT 0, -- begun so far
	start        BIGINT NOT NULL DEFAULT 0, -- the prompt has the messages above this id
	input        BIGINT NOT NULL DEFAULT 0, -- tokens, as all counts of usage
	output       BIGINT NOT NULL DEFAULT 0,
	cached       BIGINT NOT NULL DEFAULT 0,
	cost         DOUBLE PRECISION NOT NULL DEFAULT 0, -- dollars
	context      BIGINT NOT NULL DEFAULT 0, -- tokens of the newest prompt
	created_ms   BIGINT NOT NULL,
	updated_ms   BIGINT NOT NULL,
	scope        TEXT NOT NULL DEFAULT '', -- whose memory it works with
	summary      TEXT NOT NULL DEFAULT '', -- notes of what is before start
	summary_from BIGINT NOT NULL DEFAULT 0, -- first entry in it
	tidy         INTEGER NOT NULL DEFAULT 0, -- 1: compacted since it is idle
	model        TEXT NOT NULL DEFAULT '', -- '' is the configured one
	effort       TEXT NOT NULL DEFAULT '', -- how long the model thinks
	voice        TEXT NOT NULL DEFAULT '', -- when answers are spoken
	job          BIGINT NOT NULL DEFAULT 0, -- field of the key, as the next three
	hook         TEXT NOT NULL DEFAULT '',
	run          BIGINT NOT NULL DEFAULT 0,
	task         TEXT NOT NULL DEFAULT '',
	speaker      TEXT NOT NULL DEFAULT '', -- field of the key
	person       BIGINT NOT NULL DEFAULT 0, -- field of the key; if set, there is no account
	heard        BIGINT NOT NULL DEFAULT 0, -- newest ambient message that was in a prompt
	began_ms     BIGINT NOT NULL DEFAULT 0, -- when it last began anew
	activity     TEXT NOT NULL DEFAULT '' -- how much work is shown
);
CREATE INDEX sessions_scope ON sessions (scope);
CREATE INDEX sessions_untidy ON sessions (tidy) WHERE tidy = 0;
CREATE INDEX sessions_chosen ON sessions (key) WHERE queue_mode <> '' OR model <> ''
	OR effort <> '' OR voice <> '' OR activity <> '';

CREATE TABLE turns (
	id         IDENTITY PRIMARY KEY,
	session    TEXT NOT NULL,
	state      TEXT NOT NULL, -- running, done, failed or stopped
	owner      TEXT NOT NULL,
	epoch      BIGINT NOT NULL,
	attempts   INTEGER NOT NULL DEFAULT 1, -- how often it was begun or resumed
	handovers  INTEGER NOT NULL DEFAULT 0, -- how often a process that was stopping left it
	answers    INTEGER NOT NULL DEFAULT 0, -- messages that it has sent
	reply_to   TEXT NOT NULL,
	address    TEXT NOT NULL, -- bus.Address
	created_ms BIGINT NOT NULL,
	updated_ms BIGINT NOT NULL,
	tokens     BIGINT NOT NULL DEFAULT 0, -- used so far, of all attempts
	cost       DOUBLE PRECISION NOT NULL DEFAULT 0, -- dollars, likewise
	persona    TEXT NOT NULL DEFAULT '' -- with which it began
);
CREATE INDEX turns_running ON turns (session) WHERE state = 'running';

CREATE TABLE messages (
	id         IDENTITY PRIMARY KEY,
	session    TEXT NOT NULL,
	turn       BIGINT NOT NULL,
	body       TEXT NOT NULL, -- llm.Message
	created_ms BIGINT NOT NULL
);
CREATE INDEX messages_session ON messages (session, id);

CREATE TABLE session_rests (
	session TEXT PRIMARY KEY, -- was erased, and may have begun anew
	message BIGINT NOT NULL, -- its messages up to this id are still to be deleted
	turn    BIGINT NOT NULL, -- likewise
	at      BIGINT NOT NULL DEFAULT 0 -- the turns up to this id are deleted
);
