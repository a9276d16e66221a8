// Package session stores conversations: their transcripts, the turns that wrote them, and their
// settings.
//
// Functions read and write its rows. [Turn] and [Transcript] are the main types. The transcript is
// the state of a turn: the turn writes each step before the step takes effect, so that it can be
// resumed after a crash. Once a turn was stopped, or taken over under a newer lease, its writes
// fail with [ErrEnded].
//
// The prompt holds the messages after the start of the session, and a summary of those before it.
// [Compact] and [Reset] move the start. Only these functions delete rows: [Erase] with
// [DeleteErased], and because of the rows' age [PruneMessages], [PruneArchived] and [PruneTurns].
//
// Tables: sessions, turns, messages, session_rests.
package session

import (
	_ "embed"
	"time"

	"gateway/store"
)

//go:embed schema.sql
var tables string

// Migration creates the tables of this package.
var Migration = store.Migration{Package: "session", Tables: tables, Version: 14, Steps: []string{`
CREATE TABLE sessions (
	key        TEXT PRIMARY KEY,
	account    TEXT NOT NULL,
	chat       TEXT NOT NULL,
	thread     TEXT NOT NULL,
	title      TEXT NOT NULL,
	queue_mode TEXT NOT NULL DEFAULT '', -- '' is the configured one
	turns      BIGINT NOT NULL DEFAULT 0, -- begun so far
	start      BIGINT NOT NULL DEFAULT 0, -- the prompt holds the messages above this id
	input      BIGINT NOT NULL DEFAULT 0, -- tokens, as all counts of usage
	output     BIGINT NOT NULL DEFAULT 0,
	cached     BIGINT NOT NULL DEFAULT 0,
	cost       DOUBLE PRECISION NOT NULL DEFAULT 0, -- dollars
	context    BIGINT NOT NULL DEFAULT 0, -- tokens of the newest prompt
	created_ms BIGINT NOT NULL,
	updated_ms BIGINT NOT NULL
);

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
	updated_ms BIGINT NOT NULL
);
CREATE INDEX turns_running ON turns (session) WHERE state = 'running';

CREATE TABLE messages (
	id         IDENTITY PRIMARY KEY,
	session    TEXT NOT NULL,
	turn       BIGINT NOT NULL,
	body       TEXT NOT NULL, -- llm.Message
	created_ms BIGINT NOT NULL
);
CREATE INDEX messages_session ON messages (session, id);`, `
ALTER TABLE turns ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0; -- used so far, of all attempts
ALTER TABLE turns ADD COLUMN cost DOUBLE PRECISION NOT NULL DEFAULT 0; -- dollars, likewise`, `
ALTER TABLE sessions ADD COLUMN scope TEXT NOT NULL DEFAULT ''; -- whose memory it works with
ALTER TABLE sessions ADD COLUMN summary TEXT NOT NULL DEFAULT ''; -- notes of what is before start
ALTER TABLE sessions ADD COLUMN summary_from BIGINT NOT NULL DEFAULT 0; -- first entry in it
ALTER TABLE sessions ADD COLUMN tidy INTEGER NOT NULL DEFAULT 0; -- 1: compacted since it is idle
CREATE INDEX sessions_scope ON sessions (scope);
CREATE INDEX sessions_idle ON sessions (updated_ms) WHERE tidy = 0;`, `
ALTER TABLE sessions ADD COLUMN model TEXT NOT NULL DEFAULT ''; -- '' is the configured one`, `
CREATE TABLE session_rests (
	session TEXT PRIMARY KEY,           -- was erased, and may have begun anew
	message BIGINT NOT NULL,            -- its messages up to this id are still to be deleted
	turn    BIGINT NOT NULL,            -- likewise
	at      BIGINT NOT NULL DEFAULT 0   -- the turns up to this id are deleted
);`, `
-- What a session is stood in its key, of which the last part may have a mark.
ALTER TABLE sessions ADD COLUMN kind TEXT NOT NULL DEFAULT 'chat'; -- chat, task, job, hook or run
ALTER TABLE sessions ADD COLUMN reference TEXT NOT NULL DEFAULT ''; -- task, job, hook or run
ALTER TABLE sessions ADD COLUMN parent TEXT NOT NULL DEFAULT ''; -- session; '' of a chat
UPDATE sessions SET parent = rtrim(key, replace(key, '#', '')) WHERE key LIKE '%#%' AND
	key <> account || '/' || chat || CASE thread WHEN '' THEN '' ELSE '/' || thread END;
UPDATE sessions SET reference = substr(key, length(parent) + 1),
	parent = substr(parent, 1, length(parent) - 1) WHERE parent <> '';
UPDATE sessions SET kind = CASE WHEN reference GLOB '@job--*' THEN 'run'
	WHEN reference GLOB '@job-*' THEN 'job' WHEN reference GLOB '@hook-*' THEN 'hook'
	ELSE 'task' END WHERE parent <> '';
UPDATE sessions SET reference = substr(reference, length(CASE kind WHEN 'run' THEN '@job--'
	WHEN 'job' THEN '@job-' ELSE '@hook-' END) + 1) WHERE kind IN ('job', 'hook', 'run');`, `
ALTER TABLE sessions ADD COLUMN effort TEXT NOT NULL DEFAULT ''; -- how long the model thinks`, `
ALTER TABLE sessions ADD COLUMN voice TEXT NOT NULL DEFAULT ''; -- when answers are spoken`, `
-- The fields of a key, beside account, chat and thread. The column key has its name.
ALTER TABLE sessions ADD COLUMN job BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN hook TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN run BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN task TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN marks TEXT NOT NULL DEFAULT ''; -- what stands behind the address
UPDATE sessions SET marks = substr(key, length(account || '/' || chat ||
	CASE thread WHEN '' THEN '' ELSE '/' || thread END) + 1) WHERE kind <> 'chat';
UPDATE sessions SET job = CAST(substr(marks, 7) AS INTEGER) WHERE marks GLOB '#@job-[0-9]*';
UPDATE sessions SET hook = substr(marks, 8, instr(substr(marks, 8) || '#', '#') - 1)
	WHERE marks GLOB '#@hook-*';
UPDATE sessions SET run = CAST(substr(marks, instr(marks, '#@run-') + 6) AS INTEGER)
	WHERE marks GLOB '*#@run-[0-9]*';
UPDATE sessions SET run = CAST(substr(marks, instr(marks, '#@job--') + 7) AS INTEGER)
	WHERE marks GLOB '*#@job--[0-9]*';
UPDATE sessions SET task = reference WHERE kind = 'task';
UPDATE sessions SET key = replace(key, '#@job--', '#@run-') WHERE marks GLOB '*#@job--*';
UPDATE turns SET session = replace(session, '#@job--', '#@run-') WHERE session GLOB '*#@job--*';
UPDATE messages SET session = replace(session, '#@job--', '#@run-')
	WHERE session GLOB '*#@job--*';
UPDATE session_rests SET session = replace(session, '#@job--', '#@run-');
ALTER TABLE sessions DROP COLUMN marks;
ALTER TABLE sessions DROP COLUMN kind;
ALTER TABLE sessions DROP COLUMN reference;
ALTER TABLE sessions DROP COLUMN parent;`, `
ALTER TABLE turns ADD COLUMN persona TEXT NOT NULL DEFAULT ''; -- with which it began`, `
ALTER TABLE sessions ADD COLUMN speaker TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN person BIGINT NOT NULL DEFAULT 0; -- if set, there is no account
ALTER TABLE sessions ADD COLUMN heard BIGINT NOT NULL DEFAULT 0; -- newest ambient message it had
ALTER TABLE sessions ADD COLUMN began_ms BIGINT NOT NULL DEFAULT 0; -- when it last began anew
UPDATE sessions SET began_ms = created_ms;`, `
ALTER TABLE sessions ADD COLUMN activity TEXT NOT NULL DEFAULT ''; -- how much work is shown`, `
-- Without the time, a turn need not write the index.
DROP INDEX sessions_idle;
CREATE INDEX sessions_untidy ON sessions (tidy) WHERE tidy = 0;`, `
-- A start reads what people have chosen. Few of them have.
CREATE INDEX sessions_chosen ON sessions (key) WHERE queue_mode <> '' OR model <> ''
	OR effort <> '' OR voice <> '' OR activity <> '';`}}

// erasedOf returns an SQL expression for the id up to which the messages of a session are erased
// and must not be read. session is an SQL expression. Where another bound of m.id applies, a unary
// plus before erasedOf keeps the database from using it for the index.
func erasedOf(session string) string {
	return "COALESCE((SELECT e.message FROM session_rests e WHERE e.session = " + session + "), 0)"
}

// Reset makes the prompt of a session begin after its newest message. The command /new calls it.
func Reset(tx *store.Tx, key Key, now time.Time) error {
	_, err := tx.Exec(`UPDATE sessions SET context = 0, updated_ms = $2, summary = '',
		summary_from = 0, began_ms = $2,
		start = COALESCE((SELECT max(id) FROM messages WHERE session = $1), 0)
		WHERE key = $1`, key.String(), now.UnixMilli())
	return store.Wrap(err, "session: reset %s", key)
}

// StartedBefore reports whether a session exists and began before limit. A session begins with its
// first turn, and again with each [Reset].
func StartedBefore(q store.Queryer, key Key, limit time.Time) (is bool, err error) {
	err = q.QueryRow("SELECT EXISTS (SELECT 1 FROM sessions WHERE key = $1 AND began_ms < $2)",
		key.String(), limit.UnixMilli()).Scan(&is)
	return is, store.Wrap(err, "session: read %s", key)
}

// AmbientSeen returns the Seq of the newest ambient message that was part of a session's prompts,
// or 0.
func AmbientSeen(q store.Queryer, key Key) (seq int64, err error) {
	err = q.QueryRow("SELECT heard FROM sessions WHERE key = $1", key.String()).Scan(&seq)
	return seq, store.Wrap(store.Optional(err), "session: read %s", key)
}

// SetAmbientSeen stores that a session's prompts have contained the ambient messages up to seq.
func SetAmbientSeen(tx *store.Tx, key Key, seq int64) error {
	_, err := tx.Exec("UPDATE sessions SET heard = $2 WHERE key = $1", key.String(), seq)
	return store.Wrap(err, "session: write %s", key)
}
