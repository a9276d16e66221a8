package memory

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"time"

	"gateway/store"
	"gateway/store/atomicfile"
	"gateway/store/fault"
)

// A trimmer removes old entries of a scope. The lock is held.
type trimmer struct{ *ScopedStore }

// Trim removes the oldest entries of a scope from the table and from the history file. It stops at
// the first entry that is not older than before, or that Dream has not read. Trim also removes
// archived messages that are older. Lines of the file that are not entries stay. If the process
// ends meanwhile, the next Trim does the rest.
func Trim(ctx context.Context, m *Memory, of Scope, before time.Time) error {
	s := trimmer{m.In(of)}
	unlock, err := s.m.lock(ctx)
	if err != nil {
		return of.wrap("trim the history of", err)
	}
	defer unlock()
	return of.wrap("trim the history of", s.trim(ctx, before))
}

// trim implements [Trim].
func (s trimmer) trim(ctx context.Context, before time.Time) error {
	if err := s.m.folder(s.scope).sync(ctx, false); err != nil {
		return err
	}
	q := s.m.db.Read(ctx)
	st, err := s.state(q)
	if err != nil || st.number == 0 {
		return err
	}
	var last int64 // cursor of the newest entry to remove
	err = q.QueryRow(`SELECT COALESCE(max(cursor), 0) FROM memory_entries
		WHERE scope = $1 AND cursor <= $2 AND cursor < COALESCE((SELECT min(cursor)
			FROM memory_entries WHERE scope = $1 AND time_ms >= $3), $2 + 1)`,
		st.number, st.dreamed, before.UnixMilli()).Scan(&last)
	if err != nil {
		return err
	}
	if last > 0 { // the file first: the next Trim removes entries that only the table still has
		if err := s.trimFile(last); err != nil {
			return err
		}
	}
	for more := true; more; {
		fault.Point("trimming")
		err := s.m.db.Tx(ctx, func(tx *store.Tx) (err error) {
			more, err = s.trimRows(tx, st.number, last, before)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trimFile removes the entries up to a cursor from the history file.
func (s trimmer) trimFile(last int64) error {
	name := s.m.folder(s.scope).history()
	data, err := fs.ReadFile(s.m.dir.FS(), name)
	if err != nil {
		return err
	}
	var rest bytes.Buffer
	err = readLines(bytes.NewReader(data), func(l fileLine) error {
		e, err := decode(s.scope, l.data, time.Time{})
		if err != nil || e.Cursor == 0 || e.Cursor > last {
			rest.Write(data[l.at : l.at+l.size])
		}
		return nil
	})
	if err != nil || rest.Len() == len(data) {
		return err
	}
	return atomicfile.Write(s.m.dir, name, rest.Bytes(), 0o600)
}

// trimRows removes some of the entries up to a cursor, and of the messages before a time. It
// reports whether there may be more.
func (s trimmer) trimRows(
	tx *store.Tx, number, last int64, before time.Time,
) (more bool, err error) {
	drop := func(kind Kind, where string, limit any) (int, error) {
		table := rowKinds[kind].table
		rows, err := collect(tx, scanRow(kind), "DELETE FROM "+table+" WHERE id IN "+
			"(SELECT id FROM "+table+" WHERE scope = $1 AND "+where+" LIMIT 64) "+
			"RETURNING id, time_ms, session, text", number, limit)
		for _, row := range rows {
			err = errors.Join(err, row.unindex(tx, number))
		}
		return len(rows), err
	}
	entries, err := drop(KindEntry, "cursor <= $2", last)
	if err != nil {
		return false, err
	}
	messages, err := drop(KindMessage, "time_ms < $2", before.UnixMilli())
	if err == nil {
		_, err = tx.Exec("UPDATE memory_scopes SET messages = messages - $1 WHERE id = $2", messages,
			number)
	}
	return entries+messages > 0, err
}
