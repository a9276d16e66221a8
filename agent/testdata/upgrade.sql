-- Rows of a gateway whose messages had notes and whose sessions had only keys. In chat a there is a
-- running turn with a tool call, in b a question that somebody was asked, in c a job that is due in a
-- session of its own, in d the task of a sub-agent, in e a run beside its conversation that was
-- begun, and in f a dead letter.

INSERT INTO inbox (account, chat, message, state, turn, received_ms, alone, body) VALUES
('test', 'a', '1', 'taken', 1, 1, 0, '{"id":"1","from":{"account":"test","chat":"a"},"sender":{"id":"7"},"role":"owner","text":"look","time":"2026-02-16T12:51:07Z","addressed":true}'),
('test', 'b', '2', 'taken', 2, 1, 0, '{"id":"2","from":{"account":"test","chat":"b"},"sender":{"id":"7"},"role":"owner","text":"ask me","time":"2026-02-16T12:51:07Z","addressed":true}'),
('test', 'c', 'run:1:1', 'waiting', 0, 1, 0, '{"id":"run:1:1","from":{"account":"test","chat":"c"},"sender":{"id":"7"},"role":"owner","text":"look","time":"2026-02-16T12:51:07Z","addressed":true,"note":{"kind":"job","label":"look","session":"test/c#@job-1","run":1}}'),
('test', 'd', 'task:test/d:9-x', 'waiting', 0, 1, 0, '{"id":"task:test/d:9-x","from":{"account":"test","chat":"d"},"sender":{"id":"7"},"role":"owner","text":"dig","time":"2026-02-16T12:51:07Z","addressed":true,"note":{"kind":"task","label":"dig","session":"test/d#9-x","origin":"test/d","payer":9}}'),
('test', 'e', 'run:2:1', 'taken', 3, 1, 0, '{"id":"run:2:1","from":{"account":"test","chat":"e"},"sender":{"id":"7"},"role":"owner","text":"look","time":"2026-02-16T12:51:07Z","addressed":true,"note":{"kind":"job","label":"look","run":2}}');

INSERT INTO sessions (key, account, chat, thread, title, turns, created_ms, updated_ms) VALUES
('test/a', 'test', 'a', '', '', 1, 1, 1), ('test/b', 'test', 'b', '', '', 1, 1, 1),
('test/e#@job--2', 'test', 'e', '', '', 1, 1, 1);

INSERT INTO turns (session, state, owner, epoch, reply_to, address, created_ms, updated_ms) VALUES
('test/a', 'running', 'old', 1, '', '{"account":"test","chat":"a"}', 1, 1),
('test/b', 'running', 'old', 1, '', '{"account":"test","chat":"b"}', 1, 1),
('test/e#@job--2', 'running', 'old', 1, '', '{"account":"test","chat":"e"}', 1, 1);

INSERT INTO messages (session, turn, created_ms, body) VALUES
('test/a', 1, 1, '{"role":"user","text":"look"}'),
('test/a', 1, 1, '{"role":"assistant","tool_calls":[{"id":"c1","name":"look","arguments":"{}"}]}'),
('test/b', 2, 1, '{"role":"user","text":"ask me"}'),
('test/b', 2, 1, '{"role":"assistant","tool_calls":[{"id":"c2","name":"look","arguments":"{}"}]}'),
('test/e#@job--2', 3, 1, '{"role":"user","text":"look"}');

INSERT INTO questions (code, state, session, turn, call, expires_ms, body) VALUES
('abc', 'open', 'test/b', 2, 'c2', 4102444800000, '{"after":2,"kind":"ask","address":{"account":"test","chat":"b"},"sender":"7","text":"Which?"}');

INSERT INTO jobs (name, kind, text, rule, account, chat, thread, sender, person, role, in_group,
title, scope, own, state, next_ms, created_ms) VALUES
('look', 'task', 'look', '{}', 'test', 'c', '', '{"id":"7"}', 0, 'owner', 0, '', 'chat-c', 1, 'ended', 0, 1),
('look', 'task', 'look', '{}', 'test', 'e', '', '{"id":"7"}', 0, 'owner', 0, '', 'chat-e', 0, 'ended', 0, 1);

INSERT INTO runs (job, due_ms, state, attempts) VALUES (1, 1, 'waiting', 1), (2, 1, 'running', 1);

INSERT INTO outbox (account, chat, state, created_ms, updated_ms, body) VALUES
('test', 'f', 'dead', 1, 1, '{"to":{"account":"test","chat":"f"},"text":"lost"}');
