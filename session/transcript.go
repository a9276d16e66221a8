package session

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
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
	Size    int // bytes in the database
	Message llm.Message
}

// A Transcript is the part of a session that its prompt holds.
type Transcript struct {
	Entries   []Entry // in order
	Start     int64   // the prompt holds the messages above this id
	Truncated bool    // older messages did not fit

	// Follows says, for [ReadTranscriptAfter], that the session still has the message with the given
	// id. Otherwise the message was deleted, for example with an erased session.
	Follows bool
}

// ReadTranscript returns the newest messages that the prompt of a session holds, up to size bytes.
func ReadTranscript(q store.Queryer, key Key, size int) (*Transcript, error) {
	return readNewest(q, key, size, "s.start")
}

// ReadStored is like [ReadTranscript], also for messages that the prompt no longer holds.
func ReadStored(q store.Queryer, key Key, size int) (*Transcript, error) {
	return readNewest(q, key, size, "0")
}

func readNewest(q store.Queryer, key Key, size int, after string) (*Transcript, error) {
	t, err := read(q, key, 0, size, after, " DESC")
	if err == nil {
		slices.Reverse(t.Entries)
	}
	return t, err
}

// ReadTranscriptAfter returns the messages after the one with the given id.
func ReadTranscriptAfter(q store.Queryer, key Key, id int64) (*Transcript, error) {
	return read(q, key, id, math.MaxInt, "$2", "")
}

// read returns the messages of a session with ids above after, which is an SQL expression, up to
// size bytes. order follows the ORDER BY of their ids. id is the argument $2 of both, and args are
// the further ones.
func read(
	q store.Queryer, key Key, id int64, size int, after, order string, args ...any,
) (*Transcript, error) {
	rows, err := q.Query(`SELECT s.start, EXISTS (SELECT 1 FROM messages b
				WHERE b.id = $2 AND b.session = $1 AND +b.id > `+erasedOf("$1")+`),
			m.id, m.turn, m.body, m.created_ms
		FROM sessions s LEFT JOIN messages m ON m.session = s.key AND m.id > `+after+`
			AND +m.id > `+erasedOf("$1")+`
		WHERE s.key = $1 ORDER BY m.id`+order, append([]any{key.String(), id}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("session: read transcript of %s: %w", key, err)
	}
	defer rows.Close()
	t := new(Transcript)
	for rows.Next() {
		var id, turn, at sql.NullInt64
		var body []byte
		if err := rows.Scan(&t.Start, &t.Follows, &id, &turn, &body, &at); err != nil {
			return nil, fmt.Errorf("session: read transcript of %s: %w", key, err)
		}
		if !id.Valid {
			break // no such messages
		}
		if size -= len(body); size < 0 && len(t.Entries) > 0 {
			t.Truncated = true
			break
		}
		e := Entry{ID: id.Int64, Turn: turn.Int64, Size: len(body), Time: time.UnixMilli(at.Int64)}
		if err := json.Unmarshal(body, &e.Message); err != nil {
			return nil, fmt.Errorf("session: read message %d of %s: %w", e.ID, key, err)
		}
		t.Entries = append(t.Entries, e)
	}
	err = rows.Err()
	return t, store.Wrap(err, "session: read transcript of %s", key)
}

// EntriesAfter returns up to limit messages of a session after the one with the given id, oldest
// first.
func EntriesAfter(q store.Queryer, key Key, id int64, limit int) ([]Entry, error) {
	t, err := read(q, key, id, math.MaxInt, "$2", " LIMIT $3", limit)
	if err != nil {
		return nil, err
	}
	return t.Entries, nil
}

// TranscriptSize returns the total [Entry.Size] of the messages above the start of a session.
func TranscriptSize(q store.Queryer, key Key) (size int, err error) {
	err = q.QueryRow(`SELECT COALESCE(sum(octet_length(m.body)), 0)
		FROM sessions s JOIN messages m ON m.session = s.key AND m.id > s.start
			AND +m.id > `+erasedOf("$1")+` WHERE s.key = $1`,
		key.String()).Scan(&size)
	return size, store.Wrap(err, "session: read %s", key)
}

// NewestMessage returns the id of the newest message of a session, or 0 if it has none.
func NewestMessage(q store.Queryer, key Key) (id int64, err error) {
	err = q.QueryRow("SELECT COALESCE(max(id), 0) FROM messages WHERE session = $1 AND id > "+
		erasedOf("$1"), key.String()).Scan(&id)
	return id, store.Wrap(err, "session: read %s", key)
}

// ofTurn finds the messages of the turn $2 of the session $1. The search begins after the newest
// message of an earlier turn, or at the start of the prompt if that is earlier: after a failure an
// earlier turn may have written since this one began.
const ofTurn = "session = $1 AND turn = $2 AND id > min(COALESCE((SELECT b.id FROM messages b " +
	"WHERE b.session = $1 AND b.turn < $2 ORDER BY b.id DESC LIMIT 1), 0), " +
	"(SELECT s.start FROM sessions s WHERE s.key = $1))"

// TurnStart returns the id of the first message of a turn. Each turn has at least one.
func TurnStart(q store.Queryer, t *Turn) (id int64, err error) {
	err = q.QueryRow("SELECT COALESCE(min(id), 0) FROM messages WHERE "+ofTurn,
		t.Session.String(), t.ID).Scan(&id)
	return id, store.Wrap(err, "session: read turn %d", t.ID)
}

// KeepFrom returns the id of the first of the newest n messages of a session, or 0 if there are
// fewer than n.
func KeepFrom(q store.Queryer, key Key, n int) (id int64, err error) {
	err = q.QueryRow("SELECT id FROM messages WHERE session = $1 AND id > "+erasedOf("$1")+
		" ORDER BY id DESC LIMIT 1 OFFSET $2", key.String(), n-1).Scan(&id)
	return id, store.Wrap(store.Optional(err), "session: read %s", key)
}

// TurnMessages returns the messages that a turn has written, in order.
func TurnMessages(q store.Queryer, t *Turn) ([]llm.Message, error) {
	read := func(scan store.Scan, m *llm.Message) error {
		var body []byte
		if err := scan(&body); err != nil {
			return err
		}
		return json.Unmarshal(body, m)
	}
	return store.Collect(q, fmt.Sprintf("session: read turn %d", t.ID), read,
		"SELECT body FROM messages WHERE "+ofTurn+" ORDER BY id",
		t.Session.String(), t.ID)
}
