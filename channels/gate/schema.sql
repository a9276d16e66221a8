-- The tables of this package as all migrations leave them.

CREATE TABLE people (
	id         IDENTITY PRIMARY KEY,
	name       TEXT NOT NULL,
	role       TEXT NOT NULL,
	created_ms BIGINT NOT NULL
);

CREATE TABLE identities (
	account TEXT NOT NULL,
	sender  TEXT NOT NULL,
	person  BIGINT NOT NULL,
	chat    TEXT NOT NULL DEFAULT '', -- direct chat of an owner
	-- The numbers of the people whose the identity was before these were linked with others, each
	-- with a space before it.
	former  TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (account, sender)
);

CREATE TABLE pairings (
	code       TEXT PRIMARY KEY,
	account    TEXT NOT NULL,
	sender     TEXT NOT NULL,
	name       TEXT NOT NULL,
	chat       TEXT NOT NULL,
	expires_ms BIGINT NOT NULL,
	UNIQUE (account, sender)
);

CREATE TABLE places (
	account TEXT NOT NULL,
	place   TEXT NOT NULL, -- of the platform's streams, '' if there is one
	cursor  TEXT NOT NULL,
	PRIMARY KEY (account, place)
);

CREATE TABLE moves (
	account TEXT NOT NULL,
	chat    TEXT NOT NULL,
	before  TEXT NOT NULL, -- its id before
	PRIMARY KEY (account, chat)
);

CREATE TABLE accounts (
	account  TEXT PRIMARY KEY,
	state    TEXT NOT NULL,
	since_ms BIGINT NOT NULL,
	event_ms BIGINT NOT NULL -- when the platform was last heard of, 0 for never
);

CREATE TABLE notices ( -- that messages to a chat were given up
	account TEXT NOT NULL,
	chat    TEXT NOT NULL,
	told_ms BIGINT NOT NULL, -- when owners were told of it
	PRIMARY KEY (account, chat)
);

CREATE TABLE bots (
	account  TEXT PRIMARY KEY,
	platform TEXT NOT NULL -- the platform's id of what the account was when it last connected
);

CREATE TABLE denied ( -- strangers who get no pairing code
	account  TEXT NOT NULL,
	sender   TEXT NOT NULL,
	name     TEXT NOT NULL,
	since_ms BIGINT NOT NULL,
	PRIMARY KEY (account, sender)
);

CREATE TABLE known_groups ( -- about which owners were asked, or something was decided
	id       IDENTITY PRIMARY KEY,
	account  TEXT NOT NULL,
	chat     TEXT NOT NULL,
	title    TEXT NOT NULL,
	state    TEXT NOT NULL, -- asked, mention, always or ignore
	since_ms BIGINT NOT NULL,
	UNIQUE (account, chat)
);
