package session

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// A Summary replaces the messages before the start of a session in its prompt.
type Summary struct {
	Scope memory.Scope
	Start int64  // the prompt holds messages above this id
	Text  string // notes, one paragraph for each compacted part
	From  int64  // cursor of the oldest history entry in Text; 0 if there is none
}

// ReadSummary returns the summary of a session, or the zero Summary if the session does not exist.
func ReadSummary(q store.Queryer, key Key) (s Summary, err error) {
	err = q.QueryRow("SELECT scope, start, summary, summary_from FROM sessions WHERE key = $1",
		key.String()).Scan(&s.Scope, &s.Start, &s.Text, &s.From)
	return s, store.Wrap(store.Optional(err), "session: read %s", key)
}

// Compact moves the start of a session from before.Start to the message with the id to. It stores
// text as the summary of the session, and from as the cursor of the oldest history entry in it.
// Compact changes nothing and returns false if the start or the scope has changed since before was
// read, or if the session was erased.
func Compact(
	tx *store.Tx, key Key, before Summary, to int64, text string, from int64,
) (bool, error) {
	n, err := tx.Exec(`UPDATE sessions SET start = $3, summary = $4, summary_from = $5
		WHERE key = $1 AND start = $2 AND scope = $6
			AND EXISTS (SELECT 1 FROM messages WHERE id = $3 AND session = $1)
			AND $3 > `+erasedOf("$1"),
		key.String(), before.Start, to, text, from, string(before.Scope))
	return n > 0, store.Wrap(err, "session: compact %s", key)
}

// Idle returns up to limit conversations without activity since a time that were not compacted
// since then.
func Idle(q store.Queryer, since time.Time, limit int) ([]Key, error) {
	return keys(q, `WHERE tidy = 0 AND updated_ms < $1
		ORDER BY updated_ms LIMIT $2`, since.UnixMilli(), limit)
}

// keys returns the keys of the sessions for which a condition holds.
func keys(q store.Queryer, where string, args ...any) ([]Key, error) {
	read := func(scan store.Scan, key *Key) error { return scan(keyFields(key)...) }
	return store.Collect(q, "session: read keys", read,
		"SELECT "+keyColumns+" FROM sessions s "+where, args...)
}

// Named returns the key of the session with a name; false if there is none.
func Named(q store.Queryer, name string) (Key, bool, error) {
	list, err := keys(q, "WHERE key = $1", name)
	if err != nil || len(list) == 0 {
		return Key{}, false, err
	}
	return list[0], true, nil
}

// MarkTidied marks an idle session as handled until its next turn.
func MarkTidied(tx *store.Tx, key Key) error {
	_, err := tx.Exec("UPDATE sessions SET tidy = 1 WHERE key = $1", key.String())
	return store.Wrap(err, "session: tidy %s", key)
}

// MoveScope moves all sessions of the scope from to the scope to.
func MoveScope(tx *store.Tx, from, to memory.Scope) error {
	_, err := tx.Exec("UPDATE sessions SET scope = $2 WHERE scope = $1", string(from), string(to))
	return store.Wrap(err, "session: move %s", from)
}

// OfScope returns the keys of the sessions of a scope, including those of sub-agents.
func OfScope(q store.Queryer, s memory.Scope) ([]Key, error) {
	return keys(q, "WHERE scope = $1 ORDER BY key", string(s))
}

// OfPerson returns the keys of the conversation that a person has in all direct chats, and of the
// sessions that work for it. Until its first turn that conversation has no scope.
func OfPerson(q store.Queryer, person int64) ([]Key, error) {
	return keys(q, "WHERE "+ofName+" AND person = $2 AND person <> 0 ORDER BY key",
		Key{Person: person}.String(), person)
}

// OfChat returns the keys of the sessions of a chat, including those of its threads and of
// sub-agents.
func OfChat(q store.Queryer, a bus.Address) ([]Key, error) {
	chat := bus.Address{Account: a.Account, Chat: a.Chat}
	return keys(q, "WHERE "+ofName+" AND account = $2 AND chat = $3 ORDER BY key", chat.String(),
		a.Account, a.Chat)
}

// GroupScope returns the scope of the sessions of a group, or "" if it has none yet.
func GroupScope(q store.Queryer, a bus.Address) (s memory.Scope, err error) {
	chat := bus.Address{Account: a.Account, Chat: a.Chat}
	err = q.QueryRow("SELECT scope FROM sessions WHERE "+ofName+" AND account = $2 AND chat = $3 "+
		"AND scope GLOB 'chat-*' LIMIT 1", chat.String(), a.Account, a.Chat).Scan(&s)
	return s, store.Wrap(store.Optional(err), "session: read the scope of %s", chat)
}

// ofName is the condition of the session with the name $1, and of those whose names continue it
// with a thread or a mark. The database finds them by the index of the names: "0" follows "/", and
// "$" follows "#".
const ofName = `(key = $1 OR key >= $1 || '/' AND key < $1 || '0'
	OR key >= $1 || '#' AND key < $1 || '$')`

// SetScope sets the scope of a session, without moving the data of the scope.
func SetScope(tx *store.Tx, key Key, s memory.Scope) error {
	_, err := tx.Exec("UPDATE sessions SET scope = $2 WHERE key = $1", key.String(), string(s))
	return store.Wrap(err, "session: move %s", key)
}

// Erase makes a session and its messages unreachable at once. A new session may begin under the
// same key. [DeleteErased] deletes the rows later.
func Erase(tx *store.Tx, key Key) error {
	for _, statement := range []string{
		`INSERT INTO session_rests (session, message, turn)
			VALUES ($1, (SELECT COALESCE(max(id), 0) FROM messages WHERE session = $1),
				(SELECT COALESCE(max(id), 0) FROM turns))
			ON CONFLICT (session) DO UPDATE SET message = excluded.message, turn = excluded.turn`,
		"UPDATE turns SET state = 'stopped' WHERE session = $1 AND state = 'running'",
		"DELETE FROM sessions WHERE key = $1",
	} {
		if _, err := tx.Exec(statement, key.String()); err != nil {
			return fmt.Errorf("session: erase %s: %w", key, err)
		}
	}
	return nil
}

// settleTime is the maximum duration of one transaction of [DeleteErased], so that others can
// write in between.
const settleTime = 5 * time.Millisecond

// A leftovers describes the rows of an erased session that are still to be deleted.
type leftovers struct {
	session       string
	message, turn int64 // delete up to these ids
	at            int64 // turns up to this id are already deleted
}

// DeleteErased deletes some of the rows that [Erase] left behind and reports whether there
// may be more. Call it until it returns false, in a transaction each.
func DeleteErased(tx *store.Tx) (more bool, err error) { return settleSome(tx, settleTime) }

// settleSome is DeleteErased with a time limit.
func settleSome(tx *store.Tx, limit time.Duration) (more bool, err error) {
	var r leftovers
	err = tx.QueryRow("SELECT session, message, turn, at FROM session_rests ORDER BY session LIMIT 1").
		Scan(&r.session, &r.message, &r.turn, &r.at)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	began := time.Now()
	for done := false; err == nil && !done; done = done || time.Since(began) >= limit {
		done, err = r.settle(tx)
	}
	return true, store.Wrap(err, "session: settle")
}

// settle deletes a few rows of r, and finally r itself.
func (r *leftovers) settle(tx *store.Tx) (done bool, err error) {
	n, err := tx.Exec(`DELETE FROM messages WHERE id IN
		(SELECT id FROM messages WHERE session = $1 AND id <= $2 ORDER BY id LIMIT 32)`,
		r.session, r.message)
	switch {
	case err != nil || n > 0:
		return false, err
	case r.at < r.turn:
		r.at, err = store.EraseStep(tx, "turns", r.at, r.turn, "session = $3", r.session)
		if err == nil {
			_, err = tx.Exec("UPDATE session_rests SET at = $2 WHERE session = $1", r.session, r.at)
		}
		return false, err
	}
	_, err = tx.Exec("DELETE FROM session_rests WHERE session = $1", r.session)
	return true, err
}

// TurnsIn returns the number of turns in the conversations of a scope, the running ones included.
func TurnsIn(q store.Queryer, s memory.Scope) (n int, err error) {
	err = q.QueryRow(`SELECT COALESCE(sum(turns), 0) FROM sessions
		WHERE scope = $1 AND job = 0 AND hook = '' AND run = 0 AND task = ''`, string(s)).Scan(&n)
	return n, store.Wrap(err, "session: count turns of %s", s)
}
