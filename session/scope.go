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

// A Summary is what the prompt of a session holds of the messages before its start.
type Summary struct {
	Scope memory.Scope
	Start int64  // the prompt holds messages above this id
	Text  string // notes, a paragraph for each part that was compacted
	From  int64  // cursor of the oldest entry of the history that is in Text; 0 if there is none
}

// Summary returns the summary of a session; the zero Summary if there is no such session.
func (Store) Summary(q store.Queryer, key Key) (s Summary, err error) {
	err = q.QueryRow("SELECT scope, start, summary, summary_from FROM sessions WHERE key = $1",
		string(key)).Scan(&s.Scope, &s.Start, &s.Text, &s.From)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("session: read %s: %w", key, err)
	}
	return s, nil
}

// Compact moves the start of a session from before.Start to the message with the id to, and makes
// now its summary. It reports false, and does nothing, if the start or the scope has changed
// meanwhile, or if the session was erased, whether or not it has begun anew.
func (Store) Compact(
	tx *store.Tx, key Key, before Summary, to int64, text string, from int64,
) (bool, error) {
	n, err := tx.Exec(`UPDATE sessions SET start = $3, summary = $4, summary_from = $5
		WHERE key = $1 AND start = $2 AND scope = $6
			AND EXISTS (SELECT 1 FROM messages WHERE id = $3 AND session = $1)`,
		string(key), before.Start, to, text, from, string(before.Scope))
	if err != nil {
		return false, fmt.Errorf("session: compact %s: %w", key, err)
	}
	return n > 0, nil
}

// Idle returns up to limit sessions of people in which nothing has happened since a time, and
// which were not compacted since.
func (Store) Idle(q store.Queryer, since time.Time, limit int) ([]Key, error) {
	return keys(q, `SELECT key FROM sessions WHERE tidy = 0 AND updated_ms < $1
		ORDER BY updated_ms LIMIT $2`, since.UnixMilli(), limit)
}

func keys(q store.Queryer, query string, args ...any) ([]Key, error) {
	rows, err := q.Query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("session: read keys: %w", err)
	}
	defer rows.Close()
	var list []Key
	for rows.Next() {
		var key Key
		if err := rows.Scan(&key); err != nil {
			return nil, fmt.Errorf("session: read keys: %w", err)
		}
		list = append(list, key)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("session: read keys: %w", err)
	}
	return list, nil
}

// Tidy notes that an idle session is taken care of, until its next turn.
func (Store) Tidy(tx *store.Tx, key Key) error {
	if _, err := tx.Exec("UPDATE sessions SET tidy = 1 WHERE key = $1", string(key)); err != nil {
		return fmt.Errorf("session: tidy %s: %w", key, err)
	}
	return nil
}

// MoveScope makes the sessions of a scope those of another one.
func (Store) MoveScope(tx *store.Tx, from, to memory.Scope) error {
	_, err := tx.Exec("UPDATE sessions SET scope = $2 WHERE scope = $1", string(from), string(to))
	if err != nil {
		return fmt.Errorf("session: move %s: %w", from, err)
	}
	return nil
}

// OfScope returns the keys of the sessions of a scope, those of sub-agents among them.
func (Store) OfScope(q store.Queryer, s memory.Scope) ([]Key, error) {
	return keys(q, "SELECT key FROM sessions WHERE scope = $1 ORDER BY key", string(s))
}

// OfChat returns the keys of the sessions of a chat: of its threads, and of their sub-agents.
func (Store) OfChat(q store.Queryer, a bus.Address) ([]Key, error) {
	return keys(q, "SELECT key FROM sessions WHERE account = $1 AND chat = $2 ORDER BY key",
		a.Account, a.Chat)
}

// SetScope gives a session another scope, and nothing else.
func (Store) SetScope(tx *store.Tx, key Key, s memory.Scope) error {
	_, err := tx.Exec("UPDATE sessions SET scope = $2 WHERE key = $1", string(key), string(s))
	if err != nil {
		return fmt.Errorf("session: move %s: %w", key, err)
	}
	return nil
}

// Erase deletes a session with all that was said in it.
func (Store) Erase(tx *store.Tx, key Key) error {
	for _, table := range []string{
		"DELETE FROM messages WHERE session = $1",
		"DELETE FROM turns WHERE session = $1",
		"DELETE FROM sessions WHERE key = $1",
	} {
		if _, err := tx.Exec(table, string(key)); err != nil {
			return fmt.Errorf("session: erase %s: %w", key, err)
		}
	}
	return nil
}
