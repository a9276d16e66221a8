// Package bus carries messages between the chat channels and the agent, which
// never import each other.
//
// It defines the messages that both sides speak, [InboundMessage] and
// [OutboundMessage], and three ways for them: the [Inbox] and the [Outbox] are
// tables, so that what is in them survives anything; [Live] is memory and carries what
// may be lost, the text of an answer while it grows. Both tables wake their reader and
// can be read again at any time: a wake-up that is lost costs a moment, not a message.
//
// Tables: inbox, outbox, previews.
package bus

import "gateway/store"

// Migration makes the tables of this package.
var Migration = store.Migration{Package: "bus", Steps: []string{`
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
	state      TEXT NOT NULL, -- waiting, sending, sent, dead or dropped
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
DROP TABLE keys;`}}

// A signal wakes one reader. Ringing it while it is set does nothing.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) ring() {
	select {
	case s <- struct{}{}:
	default:
	}
}
