package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gateway/agent/llm"
	"gateway/store"
)

// An Entry is one message of a transcript.
type Entry struct {
	ID      int64
	Turn    int64
	Time    time.Time
	Message llm.Message
}

// Transcript returns the messages of a session that its prompt holds, in their order.
//
// No more than size bytes of them are read, counted from the newest; what is older is left out.
// truncated reports that something was.
func (Store) Transcript(q store.Queryer, key Key, size int) (list []Entry, truncated bool, err error) {
	rows, err := q.Query(`SELECT id, turn, body, created_ms FROM messages WHERE session = $1
		AND id > COALESCE((SELECT start FROM sessions WHERE key = $1), 0)
		ORDER BY id DESC`, string(key))
	if err != nil {
		return nil, false, fmt.Errorf("session: read transcript of %s: %w", key, err)
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var body []byte
		var at int64
		if err := rows.Scan(&e.ID, &e.Turn, &body, &at); err != nil {
			return nil, false, fmt.Errorf("session: read transcript of %s: %w", key, err)
		}
		if size -= len(body); size < 0 && len(list) > 0 {
			truncated = true
			break
		}
		if err := json.Unmarshal(body, &e.Message); err != nil {
			return nil, false, fmt.Errorf("session: read message %d of %s: %w", e.ID, key, err)
		}
		e.Time = time.UnixMilli(at)
		list = append(list, e)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("session: read transcript of %s: %w", key, err)
	}
	slices.Reverse(list)
	return list, truncated, nil
}

// TurnMessages returns what a turn has written, in its order.
func (Store) TurnMessages(q store.Queryer, t *Turn) ([]llm.Message, error) {
	rows, err := q.Query("SELECT body FROM messages WHERE session = $1 AND turn = $2 ORDER BY id",
		string(t.Session), t.ID)
	if err != nil {
		return nil, fmt.Errorf("session: read turn %d: %w", t.ID, err)
	}
	defer rows.Close()
	var list []llm.Message
	for rows.Next() {
		var body []byte
		var m llm.Message
		if err := rows.Scan(&body); err != nil {
			return nil, fmt.Errorf("session: read turn %d: %w", t.ID, err)
		}
		if err := json.Unmarshal(body, &m); err != nil {
			return nil, fmt.Errorf("session: read turn %d: %w", t.ID, err)
		}
		list = append(list, m)
	}
	return list, rows.Err()
}
