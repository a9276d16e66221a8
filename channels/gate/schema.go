// Package gate decides which messages get into the inbox, and with which sender and role.
//
// A [Gate] gives each channel an intake. It looks up the sender and their role, applies the
// account's [Policy], limits how fast people write, offers pairing codes to strangers, and stores
// admitted messages together with the platform's cursor. [People] stores the people.
//
// Tables: places, people, identities, pairings, denied, moves, bots, known_groups. The migration
// also contains the tables accounts, of channels/supervisor, and notices, of channels/router,
// because all of this was one package when they were created.
package gate

import "gateway/store"

// Migration creates the tables of this package.
var Migration = store.Migration{Package: "channels", Steps: []string{`
CREATE TABLE cursors (
	account TEXT PRIMARY KEY,
	cursor  TEXT NOT NULL
);

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
);`, `
CREATE TABLE places (
	account TEXT NOT NULL,
	place   TEXT NOT NULL, -- of the platform's streams, '' if there is one
	cursor  TEXT NOT NULL,
	PRIMARY KEY (account, place)
);
INSERT INTO places (account, place, cursor) SELECT account, '', cursor FROM cursors;
DROP TABLE cursors;
ALTER TABLE identities ADD COLUMN chat TEXT NOT NULL DEFAULT ''; -- direct one of an owner

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
);`, `
CREATE TABLE notices ( -- that messages to a chat were given up
	account TEXT NOT NULL,
	chat    TEXT NOT NULL,
	told_ms BIGINT NOT NULL, -- when owners were told of it
	PRIMARY KEY (account, chat)
);`, `
CREATE TABLE bots (
	account  TEXT PRIMARY KEY,
	platform TEXT NOT NULL -- the platform's id of what the account was when it last connected
);`, `
CREATE TABLE denied ( -- strangers who get no pairing code
	account  TEXT NOT NULL,
	sender   TEXT NOT NULL,
	name     TEXT NOT NULL,
	since_ms BIGINT NOT NULL,
	PRIMARY KEY (account, sender)
);`, `
CREATE TABLE known_groups ( -- about which owners were asked, or something was decided
	id       IDENTITY PRIMARY KEY,
	account  TEXT NOT NULL,
	chat     TEXT NOT NULL,
	title    TEXT NOT NULL,
	state    TEXT NOT NULL, -- asked, mention, always or ignore
	since_ms BIGINT NOT NULL,
	UNIQUE (account, chat)
);`, `
-- The numbers of the people whose the identity was before these were linked with others, each with
-- a space before it.
ALTER TABLE identities ADD COLUMN former TEXT NOT NULL DEFAULT '';`}}
