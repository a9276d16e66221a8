// Package bus carries messages between the chat channels and the agent, which never import each
// other.
//
// It defines the messages, [InboundMessage] and [OutboundMessage], and three ways to pass them on.
// The [Inbox] and the [Outbox] are database tables: their content survives a crash. [Live] is in
// memory and carries what may be lost: the growing text of an answer. Both tables wake their
// reader, and the reader can read the table at any time, so a lost wake-up causes a delay, not a
// lost message.
//
// A row that can't be read is skipped and gets the state "bad". One bad row must not keep the
// others from being read.
//
// Tables: inbox, outbox, previews, changes, predecessors.
package bus

import (
	_ "embed"

	"gateway/store"
)

//go:embed schema.sql
var tables string

// Migration creates the tables of this package.
var Migration = store.Migration{Package: "bus", Tables: tables, Version: 15, Steps: []string{`
CREATE TABLE inbox (
	id          IDENTITY PRIMARY KEY,
	account     TEXT NOT NULL,
	chat        TEXT NOT NULL,
	message     TEXT NOT NULL, -- platform's id
	state       TEXT NOT NULL, -- waiting, taken, done, dropped or heard
	turn        BIGINT NOT NULL DEFAULT 0,
	body        TEXT NOT NULL, -- InboundMessage
	received_ms BIGINT NOT NULL,
	UNIQUE (account, chat, message)
);
CREATE INDEX inbox_waiting ON inbox (id) WHERE state = 'waiting';
CREATE INDEX inbox_turn ON inbox (turn) WHERE state = 'taken';

CREATE TABLE outbox (
	id         IDENTITY PRIMARY KEY,
	account    TEXT NOT NULL,
	chat       TEXT NOT NULL,
	state      TEXT NOT NULL, -- waiting, sending, sent, dead, dropped or bad
	body       TEXT NOT NULL, -- OutboundMessage
	parts      TEXT NOT NULL DEFAULT '', -- JSON list of texts, once it was split into several
	ids        TEXT NOT NULL DEFAULT '', -- JSON list of the platform's ids of the parts sent
	attempts   INTEGER NOT NULL DEFAULT 0, -- failed tries of the part under way
	uncertain  INTEGER NOT NULL DEFAULT 0, -- tries whose outcome was never known
	error      TEXT NOT NULL DEFAULT '', -- of the last failed try
	created_ms BIGINT NOT NULL,
	updated_ms BIGINT NOT NULL
);
CREATE INDEX outbox_open ON outbox (id) WHERE state IN ('waiting', 'sending');

CREATE TABLE previews (
	stream TEXT PRIMARY KEY, -- OutboundMessage.Stream
	ids    TEXT NOT NULL     -- JSON list of the platform's ids of the messages that show it
);`, `
ALTER TABLE inbox ADD COLUMN thread TEXT NOT NULL DEFAULT '';
CREATE INDEX inbox_heard ON inbox (account, chat, thread, id) WHERE state = 'heard';
CREATE TABLE keys (
	salt TEXT PRIMARY KEY -- one row
);`, `
CREATE INDEX outbox_dead ON outbox (id) WHERE state = 'dead';`, `
ALTER TABLE outbox ADD COLUMN key TEXT NOT NULL DEFAULT ''; -- of which those of its parts are made
UPDATE outbox SET key = COALESCE((SELECT salt FROM keys), '') || id;
ALTER TABLE previews ADD COLUMN key TEXT NOT NULL DEFAULT ''; -- of a message on its way, or ''
DROP TABLE keys;`, `
ALTER TABLE inbox ADD COLUMN handed INTEGER NOT NULL DEFAULT 0; -- 1: its turn is about to begin
ALTER TABLE inbox ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0; -- processes that ended so`, `
ALTER TABLE outbox ADD COLUMN thread TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0; -- tries that ended the process
ALTER TABLE outbox ADD COLUMN tried_ms BIGINT NOT NULL DEFAULT 0; -- time spent on failed tries
UPDATE outbox SET thread = COALESCE(json_extract(body, '$.to.thread'), '')
	WHERE state IN ('waiting', 'sending', 'dead') AND json_valid(body); -- written by SQLite only
CREATE INDEX outbox_chat ON outbox (account, chat, thread, id)
	WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_bad ON outbox (id) WHERE state = 'bad';
ALTER TABLE previews ADD COLUMN updated_ms BIGINT NOT NULL DEFAULT 0;
CREATE TABLE changes (
	what TEXT PRIMARY KEY, -- outbox
	n    BIGINT NOT NULL   -- how often a person has changed deliveries in it
);`, `
-- the person who has written it in a direct chat; 0: none, -1: of an older gateway, see the body
ALTER TABLE inbox ADD COLUMN alone BIGINT NOT NULL DEFAULT -1;
CREATE INDEX inbox_alone ON inbox (alone) WHERE alone <> 0;`, `
-- What was searched for in the body gets columns, and the note in the body becomes the origin.
ALTER TABLE inbox ADD COLUMN origin TEXT NOT NULL DEFAULT 'person'; -- Origin.Kind
ALTER TABLE inbox ADD COLUMN parent TEXT NOT NULL DEFAULT ''; -- Origin.Parent
ALTER TABLE inbox ADD COLUMN person BIGINT NOT NULL DEFAULT 0; -- who wrote it; 0: unknown
ALTER TABLE inbox ADD COLUMN shared BOOLEAN NOT NULL DEFAULT FALSE; -- InboundMessage.Group
UPDATE inbox SET person = COALESCE(json_extract(body, '$.person'), 0),
	shared = COALESCE(json_extract(body, '$.group'), FALSE) WHERE json_valid(body);
UPDATE inbox SET origin = json_extract(body, '$.note.kind'),
	parent = CASE json_extract(body, '$.note.kind')
		WHEN 'task' THEN COALESCE(json_extract(body, '$.note.origin'), '')
		WHEN 'outcome' THEN COALESCE(json_extract(body, '$.note.session'), '') ELSE '' END
	WHERE CASE WHEN json_valid(body) THEN json_extract(body, '$.note.kind') END IS NOT NULL;
UPDATE inbox SET body = json_remove(json_set(body, '$.origin', json_patch(
		json_remove(body -> '$.note', '$.origin', '$.wanted', '$.unasked', '$.payer'),
		json_object('parent', NULLIF(parent, ''), 'call', body -> '$.note.wanted',
			'background', body -> '$.note.unasked', 'budget', body -> '$.note.payer')
	)), '$.note') WHERE origin <> 'person';
UPDATE inbox SET body = json_set(body, '$.origin.reminder', json('true'))
	WHERE origin = 'job' AND body ->> '$.text' GLOB 'Reminder: *';
DROP INDEX inbox_alone;
ALTER TABLE inbox DROP COLUMN alone;
CREATE INDEX inbox_direct ON inbox (person) WHERE person <> 0 AND NOT shared;`, `
-- What is open has outbox_chat. The newest is found by its id.
DROP INDEX outbox_open;`, `
-- Older versions named the session of a run like that of a job.
UPDATE inbox SET parent = replace(parent, '#@job--', '#@run-') WHERE parent <> '';`, `
-- One index for the two states, because most messages have both. A waiting message has no turn.
UPDATE inbox SET turn = 0 WHERE state = 'waiting' AND turn <> 0;
DROP INDEX inbox_waiting;
DROP INDEX inbox_turn;
CREATE INDEX inbox_open ON inbox (state, turn) WHERE state = 'waiting' OR state = 'taken';`, `
-- It finds a person's messages in groups, too, and their chats without reading the messages.
DROP INDEX inbox_direct;
CREATE INDEX inbox_person ON inbox (person, shared, account, chat) WHERE person <> 0;`, `
CREATE TABLE predecessors ( -- what accounts were on their platforms before
	account TEXT PRIMARY KEY,
	message BIGINT NOT NULL -- inbox id of the newest message that may have come to the earlier one
);`, `
CREATE INDEX outbox_dropped ON outbox (id) WHERE state = 'dropped';`, `
CREATE INDEX inbox_held ON inbox (account, id) WHERE state = 'held';`}}

// A Signal wakes one reader.
type Signal chan struct{}

// NewSignal returns a Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Ring wakes the reader. Calling it again before the reader has received does nothing.
func (s Signal) Ring() {
	select {
	case s <- struct{}{}:
	default:
	}
}
