-- The table of this package as all migrations leave it.

CREATE TABLE questions (
	id         IDENTITY PRIMARY KEY,
	code       TEXT NOT NULL UNIQUE,
	state      TEXT NOT NULL, -- open, answered, granted, refused, expired, used or void
	session    TEXT NOT NULL,
	turn       BIGINT NOT NULL,
	call       TEXT NOT NULL, -- id of the tool call whose result it is for
	body       TEXT NOT NULL, -- Question
	answer     TEXT NOT NULL DEFAULT '',
	decided_by TEXT NOT NULL DEFAULT '', -- account/sender
	expires_ms BIGINT NOT NULL
);
CREATE INDEX questions_open ON questions (session) WHERE state = 'open';
CREATE INDEX questions_call ON questions (turn, call);
