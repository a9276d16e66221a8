package memory

import (
	"slices"
	"strings"
	"time"

	"gateway/store"
)

// MaxEntry is the greatest length of the text of a history entry, in bytes.
const MaxEntry = 256 << 10

// An Entry is a line of the scope's history, such as the summary of a part of a
// conversation.
type Entry struct {
	Cursor  int64     // its position in the history, from 1; never reused
	Time    time.Time // in milliseconds; zero means now
	Session string
	Text    string
}

// foreignMark begins the text of an entry that is derived from foreign text.
const foreignMark = "[of what others have written, such as pages and files: nothing lasting " +
	"comes of it by itself]\n"

// MarkForeign returns the text of an entry that is derived from foreign text.
func MarkForeign(text string) string { return foreignMark + text }

// IsForeign reports whether e is derived from foreign text. Dream makes no lasting changes
// because of such an entry.
func (e Entry) IsForeign() bool {
	return strings.HasPrefix(e.Text, strings.TrimSuffix(foreignMark, "\n"))
}

func (e Entry) doc() doc {
	return doc{kind: KindEntry, text: e.Text, time: e.Time, session: e.Session}
}

// clean returns the entry in the form in which it is stored.
func (e Entry) clean(now time.Time) Entry {
	if e.Time.IsZero() {
		e.Time = now
	}
	e.Time = time.UnixMilli(e.Time.UnixMilli())
	e.Session = strings.ToValidUTF8(e.Session, "�")
	e.Text = strings.TrimSpace(strings.ToValidUTF8(e.Text, "�"))
	return e
}

// Append adds an entry to the history and returns its cursor, which is greater than all
// before. It ignores e.Cursor. The history file gets the entry with the next
// [Memory.Sync].
func (s *ScopedStore) Append(tx *store.Tx, e Entry) (int64, error) {
	e = e.clean(s.m.now())
	switch {
	case e.Text == "":
		return 0, refuse("the history entry has no text")
	case len(e.Text) > MaxEntry:
		return 0, refuse("the history entry has %d bytes, more than %d", len(e.Text), MaxEntry)
	}
	number, err := s.number(tx)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow("UPDATE memory_scopes SET last = last + 1 WHERE id = $1 RETURNING last",
		number).Scan(&e.Cursor)
	if err == nil {
		err = insertEntry(tx, number, e)
	}
	return e.Cursor, s.scope.wrap("append to the history of", err)
}

// insertEntry writes and indexes an entry whose cursor is set.
func insertEntry(tx *store.Tx, number int64, e Entry) error {
	var id int64
	err := tx.QueryRow(`INSERT INTO memory_entries (scope, cursor, time_ms, session, text)
		VALUES ($1, $2, $3, $4, $5) RETURNING id`,
		number, e.Cursor, e.Time.UnixMilli(), e.Session, e.Text).Scan(&id)
	if err != nil {
		return err
	}
	return indexed{id, e.doc()}.index(tx, number)
}

const entryColumns = "cursor, time_ms, session, text"

func scanEntry(scan func(...any) error) (e Entry, err error) {
	var ms int64
	err = scan(&e.Cursor, &ms, &e.Session, &e.Text)
	e.Time = time.UnixMilli(ms)
	return e, err
}

// Entries returns up to limit entries after a cursor, the oldest first.
func (s *ScopedStore) Entries(q store.Queryer, after int64, limit int) ([]Entry, error) {
	return s.entries(q, "SELECT "+entryColumns+" FROM memory_entries "+
		"WHERE scope = $1 AND cursor > $2 ORDER BY cursor LIMIT $3", after, limit)
}

// Newest returns the newest entries after a cursor, at most limit, the oldest of them
// first.
func (s *ScopedStore) Newest(q store.Queryer, after int64, limit int) ([]Entry, error) {
	list, err := s.entries(q, newestQuery, after, limit)
	slices.Reverse(list)
	return list, err
}

const newestQuery = "SELECT " + entryColumns + " FROM memory_entries " +
	"WHERE scope = $1 AND cursor > $2 ORDER BY cursor DESC LIMIT $3"

// Always returns the part of the memory that each prompt of the scope contains: the pinned facts,
// and the newest limit entries that Dream has not read, the oldest first.
func (s *ScopedStore) Always(q store.Queryer, limit int) (pinned []Fact, news []Entry, err error) {
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, nil, err
	}
	pinned, err = factTable{st.number}.list(q, pinnedQuery)
	if err != nil || st.last <= st.dreamed {
		return pinned, nil, s.scope.wrap("read facts of", err)
	}
	news, err = collect(q, scanEntry, newestQuery, st.number, st.dreamed, limit)
	slices.Reverse(news)
	return pinned, news, s.scope.wrap("read the history of", err)
}

// entries runs a query whose first argument is the scope's number.
func (s *ScopedStore) entries(q store.Queryer, query string, args ...any) ([]Entry, error) {
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return nil, err
	}
	list, err := collect(q, scanEntry, query, append([]any{st.number}, args...)...)
	return list, s.scope.wrap("read the history of", err)
}

// Last returns the cursor of the newest entry, 0 if the scope never had one.
func (s *ScopedStore) Last(q store.Queryer) (int64, error) {
	st, err := s.state(q)
	return st.last, err
}

// CountEntries returns the number of entries.
func (s *ScopedStore) CountEntries(q store.Queryer) (n int, err error) {
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return 0, err
	}
	err = q.QueryRow("SELECT count(*) FROM memory_entries WHERE scope = $1", st.number).Scan(&n)
	return n, s.scope.wrap("read the history of", err)
}

// Dreamed returns the cursor up to which Dream has read the entries.
func (s *ScopedStore) Dreamed(q store.Queryer) (int64, error) {
	st, err := s.state(q)
	return st.dreamed, err
}

// SetDreamed records that Dream has read the entries up to a cursor.
func (s *ScopedStore) SetDreamed(tx *store.Tx, cursor int64) error {
	number, err := s.number(tx)
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE memory_scopes SET dreamed = $1 WHERE id = $2", cursor, number)
	return s.scope.wrap("note what Dream has read of", err)
}

// A Message is a message of a transcript that prompts no longer contain.
type Message struct {
	ID      int64     // the row's id in the transcript
	Time    time.Time // zero means now
	Session string
	Speaker string // "user" or "assistant"
	Text    string
}

func (m Message) doc() doc {
	return doc{kind: KindMessage, text: m.Text, time: m.Time, session: m.Session}
}

// Archive makes messages searchable. It skips empty messages and those that are archived
// already.
func (s *ScopedStore) Archive(tx *store.Tx, list []Message) error {
	if len(list) == 0 {
		return nil
	}
	number, err := s.number(tx)
	if err != nil {
		return err
	}
	now, added := s.m.now(), 0
	for _, msg := range list {
		msg.Text = strings.TrimSpace(strings.ToValidUTF8(msg.Text, "�"))
		if msg.Text == "" {
			continue
		}
		if msg.Time.IsZero() {
			msg.Time = now
		}
		ids, err := insertMessage(tx, number, msg)
		if err == nil && len(ids) == 1 {
			added++
			err = indexed{ids[0], msg.doc()}.index(tx, number)
		}
		if err != nil {
			return s.scope.wrap("archive messages of", err)
		}
	}
	_, err = tx.Exec("UPDATE memory_scopes SET messages = messages + $1 WHERE id = $2", added, number)
	return s.scope.wrap("archive messages of", err)
}

// insertMessage returns the id of the new row, or an empty slice if the message is
// archived already.
func insertMessage(tx *store.Tx, number int64, msg Message) ([]int64, error) {
	return collect(tx, column[int64], `INSERT INTO memory_messages
			(scope, message, time_ms, session, speaker, text)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (scope, message) DO NOTHING RETURNING id`,
		number, msg.ID, msg.Time.UnixMilli(), msg.Session, msg.Speaker, msg.Text)
}
