package memory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"gateway/store"
	"gateway/store/plainjson"
)

// HistoryFile is the name of the history in the folder of a scope.
const HistoryFile = "history.jsonl"

// line is the JSON form of an entry in the history file.
type line struct {
	Cursor  int64     `json:"cursor"`
	Time    time.Time `json:"time"`
	Scope   Scope     `json:"scope"`
	Session string    `json:"session"`
	Text    string    `json:"text"`
}

// maxCursor is the greatest cursor accepted from a file. Every JSON implementation
// represents it exactly.
const maxCursor = 1 << 53

// encode returns the line of an entry, including the newline.
func encode(s Scope, e Entry) ([]byte, error) {
	data, err := plainjson.Marshal(line{e.Cursor, e.Time.UTC(), s, e.Session, e.Text})
	return append(data, '\n'), err
}

// decode parses a line. Only a line without a cursor may lack the time, which is then now.
// The errors are written for people.
func decode(s Scope, data []byte, now time.Time) (Entry, error) {
	if data == nil {
		return Entry{}, fmt.Errorf("longer than %d bytes", maxLine)
	}
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return Entry{}, fmt.Errorf("not a JSON object of an entry: %w", err)
	}
	e := Entry{l.Cursor, l.Time, l.Session, l.Text}.clean(now)
	switch {
	case l.Time.IsZero() && l.Cursor != 0:
		return e, errors.New("has no time")
	case l.Scope != "" && l.Scope != s:
		return e, fmt.Errorf("belongs to %q", l.Scope)
	case e.Text == "":
		return e, errors.New("has no text")
	case len(e.Text) > MaxEntry:
		return e, fmt.Errorf("has %d bytes of text, more than %d", len(e.Text), MaxEntry)
	case e.Cursor < 0 || e.Cursor > maxCursor:
		return e, fmt.Errorf("has the cursor %d", e.Cursor)
	}
	return e, nil
}

// Sync appends to the scope's history file the entries that it lacks at its end. It may be
// called after a kill at any time: a partly written line is written again. It never
// changes what a person has written, but may add a newline at the end. If the file is
// missing, Sync writes all entries.
func (m *Memory) Sync(ctx context.Context, s Scope) error {
	known := 0
	_, err := ParseScope(string(s))
	if err == nil {
		err = m.db.Read(ctx).QueryRow(`SELECT (SELECT count(*) FROM memory_leftovers WHERE name = $1) +
			(SELECT count(*) FROM memory_scopes WHERE name = $1 AND last > 0)`, string(s)).Scan(&known)
	}
	if err != nil || known == 0 { // then not even the lock's file is created
		return s.wrap("write the history of", err)
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return s.wrap("write the history of", err)
	}
	defer unlock()
	return s.wrap("write the history of", m.folder(s).sync(ctx, false))
}

// A folder is the folder of one scope, with its history file. The caller of a method holds the lock
// of the files.
type folder struct {
	db    *store.DB
	dir   *os.Root // has the folders of all scopes
	space *ScopedStore
}

func (m *Memory) folder(s Scope) folder { return folder{m.db, m.dir, m.In(s)} }

// history returns the name of the history file in dir.
func (d folder) history() string { return path.Join(string(d.space.scope), HistoryFile) }

// sync implements [Memory.Sync]. If taken is set, entries that the file once had and now
// lacks were removed on purpose and are not written again.
func (d folder) sync(ctx context.Context, taken bool) error {
	if err := d.finish(ctx); err != nil {
		return err
	}
	st, err := d.space.state(d.db.Read(ctx))
	if err != nil || st.last == 0 {
		return err
	}
	if err := d.dir.MkdirAll(string(d.space.scope), 0o700); err != nil {
		return err
	}
	f, err := d.dir.OpenFile(d.history(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	at, err := d.resume(ctx, f, st)
	if taken {
		at = max(at, st.synced)
	}
	if err == nil {
		at, err = d.appendTo(ctx, f, at)
	}
	at = max(at, st.last) // removed entries can't be missing
	if err = errors.Join(err, f.Close()); err != nil || at == st.synced {
		return err
	}
	return d.db.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE memory_scopes SET synced = $1 WHERE id = $2", at, st.number)
		return err
	})
}

// appendTo writes the entries after a cursor to f, and returns the last cursor written.
func (d folder) appendTo(ctx context.Context, f *os.File, at int64) (int64, error) {
	const page = 200
	for wrote := false; ; wrote = true {
		entries, err := d.space.Entries(d.db.Read(ctx), at, page)
		if err != nil {
			return at, err
		}
		if len(entries) == 0 {
			if wrote {
				err = f.Sync()
			}
			return at, err
		}
		var b bytes.Buffer
		for _, e := range entries {
			data, err := encode(d.space.scope, e)
			if err != nil {
				return at, err
			}
			b.Write(data)
			at = e.Cursor
		}
		if _, err := f.Write(b.Bytes()); err != nil {
			return at, err
		}
	}
}

// resume repairs the end of a history file and returns the cursor after which writing
// continues.
func (d folder) resume(ctx context.Context, f *os.File, st state) (int64, error) {
	last, torn, err := tail(f)
	if err != nil {
		return 0, err
	}
	_, bad := decode(d.space.scope, torn, time.Time{})
	if len(torn) > 0 && bad == nil { // only its end is missing
		last, torn = torn, nil
		if _, err := f.Write([]byte("\n")); err != nil {
			return 0, err
		}
	}
	at := st.synced
	if e, err := decode(d.space.scope, last, time.Time{}); err != nil || e.Cursor != at {
		// The process ended before it recorded what it wrote, or a person has edited the file.
		if at, err = lastCursor(d.space.scope, f); err != nil {
			return 0, err
		}
	}
	if at > st.last {
		if err := d.advance(ctx, at); err != nil {
			return 0, err
		}
	}
	if len(torn) > 0 {
		err = d.repairEnd(ctx, f, at, torn)
	}
	return at, err
}

// repairEnd repairs a file that ends within a line. If the torn line is a part of the entry
// after at, repairEnd removes it, because it is written again. Anything else was written by a
// person: repairEnd keeps it and adds a newline.
func (d folder) repairEnd(ctx context.Context, f *os.File, at int64, torn []byte) error {
	next, err := d.space.Entries(d.db.Read(ctx), at, 1)
	if err != nil {
		return err
	}
	if len(next) == 1 {
		whole, err := encode(d.space.scope, next[0])
		if err != nil {
			return err
		}
		if bytes.HasPrefix(whole, torn) {
			info, err := f.Stat()
			if err != nil {
				return err
			}
			return f.Truncate(info.Size() - int64(len(torn)))
		}
	}
	_, err = f.Write([]byte("\n"))
	return err
}

// tail returns the last complete line of a file and the bytes after it. Each is cut at
// maxLine.
func tail(f *os.File) (last, torn []byte, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	for n := int64(64 << 10); ; n *= 2 {
		n = min(n, info.Size())
		data := make([]byte, n)
		if _, err := f.ReadAt(data, info.Size()-n); err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, err
		}
		end := bytes.LastIndexByte(data, '\n')
		begin := bytes.LastIndexByte(data[:max(end, 0)], '\n')
		if begin >= 0 || n == info.Size() || n > 2*maxLine {
			return data[begin+1 : max(end, begin+1)], data[end+1:], nil
		}
	}
}

// lastCursor returns the greatest cursor in a history file.
func lastCursor(s Scope, f *os.File) (at int64, err error) {
	err = readLines(io.NewSectionReader(f, 0, 1<<62), func(l fileLine) error {
		if e, err := decode(s, l.data, time.Time{}); err == nil {
			at = max(at, e.Cursor)
		}
		return nil
	})
	return at, err
}

// advance handles a file with cursors that the table has not assigned yet: a person has
// written them, or the database is an older copy. The history continues after them.
// Entries that the file lacks get new cursors, because theirs may be in use in the file.
func (d folder) advance(ctx context.Context, at int64) error {
	return d.db.Tx(ctx, func(tx *store.Tx) error {
		st, err := d.space.state(tx)
		if err != nil || at <= st.last {
			return err
		}
		shift := at - st.synced
		for _, by := range []int64{maxCursor, shift - maxCursor} { // in two steps: no collision
			_, err := tx.Exec("UPDATE memory_entries SET cursor = cursor + $1 "+
				"WHERE scope = $2 AND cursor > $3", by, st.number, st.synced)
			if err != nil {
				return err
			}
		}
		_, err = tx.Exec("UPDATE memory_scopes SET last = last + $1, synced = $2 WHERE id = $3",
			shift, at, st.number)
		return err
	})
}

// maxLine is the longest line that is read, in bytes: JSON may need six bytes for one.
const maxLine = 6*MaxEntry + 4096

// fileLine is a line of a file and its position.
type fileLine struct {
	number   int // from 1
	at, size int64
	data     []byte // nil if it is longer than maxLine; valid until the next line
}

// readLines calls yield with each non-empty line of a file. It skips the byte order mark that
// some editors write.
func readLines(file io.Reader, yield func(fileLine) error) error {
	r := bufio.NewReaderSize(file, 64<<10)
	l := fileLine{}
	for {
		l.number++
		l.at += l.size
		l.size, l.data = 0, l.data[:0]
		long := false
		for end := false; !end; {
			chunk, err := r.ReadSlice('\n')
			l.size += int64(len(chunk))
			if long = long || len(l.data)+len(chunk) > maxLine; !long {
				l.data = append(l.data, chunk...)
			}
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case errors.Is(err, io.EOF) && l.size == 0:
				return nil
			case err != nil && !errors.Is(err, io.EOF):
				return err
			}
			end = true
		}
		line := l
		if line.data = bytes.TrimSpace(bytes.TrimPrefix(line.data, []byte("\ufeff"))); long {
			line.data = nil
		}
		if long || len(line.data) > 0 {
			if err := yield(line); err != nil {
				return err
			}
		}
	}
}

// SyncAll calls [Memory.Sync] for all scopes whose files lag behind. It also removes the
// files that [ScopedStore.Erase] and [Memory.Merge] left when a process ended early.
func (m *Memory) SyncAll(ctx context.Context) error {
	scopes, err := m.names(ctx, "SELECT name FROM memory_leftovers UNION "+
		"SELECT name FROM memory_scopes WHERE synced < last")
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range scopes {
		errs = append(errs, m.Sync(ctx, s)) // continue after a bad folder
	}
	return errors.Join(errs...)
}

func (m *Memory) names(ctx context.Context, query string) ([]Scope, error) {
	return collect(m.db.Read(ctx), column[Scope], query)
}
