-- The tables of this package as all migrations leave them.

CREATE TABLE inbox (
	id          IDENTITY PRIMARY KEY,
	account     TEXT NOT NULL,
	chat        TEXT NOT NULL,
	message     TEXT NOT NULL, -- platform's id
	state       TEXT NOT NULL, -- waiting, held, taken, done, dropped, heard or bad
	turn        BIGINT NOT NULL DEFAULT 0, -- that answers it; 0: none yet
	body        TEXT NOT NULL, -- InboundMessage
	received_ms BIGINT NOT NULL,
	thread      TEXT NOT NULL DEFAULT '',
	handed      INTEGER NOT NULL DEFAULT 0, -- 1: its turn is about to begin
	crashes     INTEGER NOT NULL DEFAULT 0, -- processes that crashed while it was handed
	origin      TEXT NOT NULL DEFAULT 'person', -- Origin.Kind
	parent      TEXT NOT NULL DEFAULT '', -- Origin.Parent
	person      BIGINT NOT NULL DEFAULT 0, -- who wrote it; 0: unknown
	shared      BOOLEAN NOT NULL DEFAULT FALSE, -- InboundMessage.Group
	UNIQUE (account, chat, message)
);
CREATE INDEX inbox_open ON inbox (state, turn) WHERE state = 'waiting' OR state = 'taken';
CREATE INDEX inbox_heard ON inbox (account, chat, thread, id) WHERE state = 'heard';
CREATE INDEX inbox_held ON inbox (account, id) WHERE state = 'held';
CREATE INDEX inbox_person ON inbox (person, shared, account, chat) WHERE person <> 0;

CREATE TABLE outbox (
	id         IDENTITY PRIMARY KEY,
	account    TEXT NOT NULL,
	chat       TEXT NOT NULL,
	state      TEXT NOT NULL, -- waiting, sending, sent, dead, dropped or bad
	body       TEXT NOT NULL, -- OutboundMessage
	parts      TEXT NOT NULL DEFAULT '', -- JSON list of texts, once it was split into several
	ids        TEXT NOT NULL DEFAULT '', -- JSON list of the platform's ids of the parts sent
	attempts   INTEGER NOT NULL DEFAULT 0, -- failed attempts at the current part
	uncertain  INTEGER NOT NULL DEFAULT 0, -- attempts whose outcome is unknown
	error      TEXT NOT NULL DEFAULT '', -- of the last failed attempt
	created_ms BIGINT NOT NULL,
	updated_ms BIGINT NOT NULL,
	key        TEXT NOT NULL DEFAULT '', -- from which the keys of its parts are made
	thread     TEXT NOT NULL DEFAULT '',
	crashes    INTEGER NOT NULL DEFAULT 0, -- consecutive attempts that crashed the process
	tried_ms   BIGINT NOT NULL DEFAULT 0 -- total of failed attempts and the waits between them
);
CREATE INDEX outbox_chat ON outbox (account, chat, thread, id)
	WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_dead ON outbox (id) WHERE state = 'dead';
CREATE INDEX outbox_dropped ON outbox (id) WHERE state = 'dropped';
CREATE INDEX outbox_bad ON outbox (id) WHERE state = 'bad';

CREATE TABLE previews (
	stream     TEXT PRIMARY KEY, -- OutboundMessage.Stream
	ids        TEXT NOT NULL, -- JSON list of the platform's ids of the messages that show it
	key        TEXT NOT NULL DEFAULT '', -- of a message on its way, or ''
	updated_ms BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE changes (
	what TEXT PRIMARY KEY, -- outbox
	n    BIGINT NOT NULL -- how often a person has changed deliveries in it
);

CREATE TABLE predecessors ( -- what accounts were on their platforms before
	account TEXT PRIMARY KEY,
	message BIGINT NOT NULL -- inbox id of the newest message that may have come to the earlier one
);
