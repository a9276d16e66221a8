package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"gateway/store"
	"gateway/store/atomicfile"
	"gateway/store/plaintext"
)

// A RebuildResult is the result of [Memory.Rebuild].
type RebuildResult struct {
	Entries int      // number of entries now
	Changed int      // entries with a changed text, time or session
	Added   int      // entries that the table did not have
	Removed int      // entries that the file no longer has
	Bad     []string // invalid lines with their numbers; they stay in the file
}

// Rebuild imports the changes that a person has made in the scope's history file: lines
// may be changed, removed, added and moved. A line without a cursor gets one, which is
// also written to the file. An entry that the file lacks is kept if an unreadable line may
// be that entry.
func (m *Memory) Rebuild(ctx context.Context, s Scope) (RebuildResult, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return RebuildResult{}, s.wrap("rebuild", err)
	}
	defer unlock()
	r := rebuild{m: m, s: s, space: m.In(s)}
	err = r.run(ctx)
	return r.RebuildResult, s.wrap("rebuild", err)
}

// rebuild compares a file with the table.
type rebuild struct {
	RebuildResult
	m     *Memory
	s     Scope
	space *ScopedStore

	number    int64           // of the scope when the file was read
	entries   map[int64]Entry // entries of the file, by cursor
	protected map[int64]bool  // cursors in lines that can't be read
	unsure    bool            // an unreadable line has no cursor
}

func (r *rebuild) run(ctx context.Context) error {
	name := r.m.folder(r.s).history()
	_, err := r.m.dir.Stat(name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if err := r.m.folder(r.s).sync(ctx, !missing); err != nil || missing {
		return errors.Join(err, r.count(ctx))
	}
	err = r.m.db.Tx(ctx, func(tx *store.Tx) error { _, err := r.space.number(tx); return err })
	if err != nil {
		return err
	}
	st, err := r.space.state(r.m.db.Read(ctx)) // before the file is read: it had all up to st.synced
	r.number = st.number
	if err == nil {
		err = r.read(ctx, name)
	}
	if err == nil {
		err = r.compare(ctx, st.synced)
	}
	return errors.Join(err, r.count(ctx))
}

func (r *rebuild) count(ctx context.Context) error {
	return r.m.db.Read(ctx).QueryRow("SELECT count(*) FROM memory_entries WHERE scope = "+
		"(SELECT id FROM memory_scopes WHERE name = $1)", string(r.s)).Scan(&r.Entries)
}

// cursorInText finds the cursor in a line that is not JSON.
var cursorInText = plaintext.Pattern(`"?cursor"?\s*[:=]\s*"?([0-9]{1,15})`)

const maxBad = 100 // invalid lines that are reported

// read reads the file, and gives a cursor to each entry without one.
func (r *rebuild) read(ctx context.Context, name string) error {
	data, err := r.m.dir.ReadFile(name)
	if err != nil {
		return err
	}
	r.entries, r.protected = make(map[int64]Entry), make(map[int64]bool)
	var fresh []freshLine
	var last int64
	now := r.m.now()
	err = readLines(bytes.NewReader(data), func(l fileLine) error {
		e, err := decode(r.s, l.data, now)
		switch _, twice := r.entries[e.Cursor]; {
		case err != nil:
			r.bad(l, err)
		case e.Cursor == 0 || twice:
			fresh = append(fresh, freshLine{l, e})
		default:
			r.entries[e.Cursor] = e
			last = max(last, e.Cursor)
		}
		return ctx.Err()
	})
	if err == nil {
		err = r.m.folder(r.s).advance(ctx, last)
	}
	if err != nil || len(fresh) == 0 {
		return err
	}
	return r.assignCursors(ctx, name, data, fresh)
}

// freshLine is a line that needs a cursor.
type freshLine struct {
	fileLine
	entry Entry
}

// bad records an unreadable line, and protects the entry that it may be from removal.
func (r *rebuild) bad(l fileLine, reason error) {
	if len(r.Bad) < maxBad {
		r.Bad = append(r.Bad, fmt.Sprintf("line %d: %v", l.number, reason))
	}
	m := cursorInText().FindSubmatch(l.data)
	if m == nil {
		r.unsure = true
		return
	}
	if cursor, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
		r.protected[cursor] = true
	}
}

// assignCursors writes the file again, with cursors in the lines that need one. Everything else
// stays unchanged.
func (r *rebuild) assignCursors(
	ctx context.Context, name string, data []byte, fresh []freshLine,
) error {
	next, err := r.reserve(ctx, int64(len(fresh)))
	if err != nil {
		return err
	}
	before := data
	if data, err = r.m.dir.ReadFile(name); err != nil { // reserve may have appended lines
		return err
	}
	if !bytes.HasPrefix(data, before) {
		return errors.New("somebody edits the file: save it, and try again")
	}
	var b bytes.Buffer
	var at int64 // offset up to which data is copied
	for _, l := range fresh {
		e := l.entry
		e.Cursor, next = next, next+1
		r.entries[e.Cursor] = e
		line, err := encode(r.s, e)
		if err != nil {
			return err
		}
		b.Write(data[at:l.at])
		b.Write(line)
		at = l.at + l.size
	}
	b.Write(data[at:])
	return atomicfile.Write(r.m.dir, name, b.Bytes(), 0o600)
}

// reserve assigns n cursors to lines of the file and returns the first.
func (r *rebuild) reserve(ctx context.Context, n int64) (next int64, err error) {
	for {
		// Entries that the file lacks must keep higher cursors than synced, or Sync would never
		// write them.
		err := r.m.db.Tx(ctx, func(tx *store.Tx) error {
			next = 0
			st, err := r.space.state(tx)
			if err != nil || st.synced != st.last {
				return err
			}
			next = st.last + 1
			_, err = tx.Exec("UPDATE memory_scopes SET last = last + $1, synced = last + $2 "+
				"WHERE id = $3", n, n, st.number)
			return err
		})
		if err != nil || next != 0 {
			return next, err
		}
		if err := r.m.folder(r.s).sync(ctx, true); err != nil {
			return 0, err
		}
	}
}

// compare makes the table equal to the file. The file once had all entries up to synced.
func (r *rebuild) compare(ctx context.Context, synced int64) error {
	differ := maps.Clone(r.entries)
	var gone []int64
	for at := int64(0); ; {
		page, err := r.space.Entries(r.m.db.Read(ctx), at, pageSize)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			at = e.Cursor
			switch there, ok := r.entries[at]; {
			case ok && there.Time.Equal(e.Time) && there.Session == e.Session && there.Text == e.Text:
				delete(differ, at)
			case ok:
				r.Changed++
			case at <= synced && !r.unsure && !r.protected[at]:
				gone = append(gone, at)
			}
		}
	}
	r.Added, r.Removed = len(differ)-r.Changed, len(gone)
	for page := range slices.Chunk(slices.Sorted(maps.Keys(differ)), pageSize) {
		var entries []Entry
		for _, cursor := range page {
			entries = append(entries, differ[cursor])
		}
		err := r.m.db.Tx(ctx, func(tx *store.Tx) error { return r.replace(tx, entries) })
		if err != nil {
			return err
		}
	}
	for page := range slices.Chunk(gone, pageSize) {
		err := r.m.db.Tx(ctx, func(tx *store.Tx) error { return r.space.remove(tx, page) })
		if err != nil {
			return err
		}
	}
	return nil
}

// replace writes entries with their cursors, and overwrites existing ones. It fails if the scope
// was erased or merged since the file was read.
func (r *rebuild) replace(tx *store.Tx, entries []Entry) error {
	st, err := r.space.state(tx)
	if err == nil && st.number != r.number {
		err = errors.New("it was erased or merged meanwhile")
	}
	if err != nil {
		return err
	}
	cursors := make([]int64, len(entries))
	for i, e := range entries {
		cursors[i] = e.Cursor
	}
	if err := r.space.remove(tx, cursors); err != nil {
		return err
	}
	for _, e := range entries {
		if err := insertEntry(tx, st.number, e); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the entries with the given cursors.
func (s *ScopedStore) remove(tx *store.Tx, cursors []int64) error {
	st, err := s.state(tx)
	if err != nil {
		return err
	}
	for _, cursor := range cursors {
		old, err := collect(tx, scanRow(KindEntry), `DELETE FROM memory_entries
			WHERE scope = $1 AND cursor = $2 RETURNING id, time_ms, session, text`, st.number, cursor)
		if err != nil {
			return err
		}
		for _, row := range old {
			if err := row.unindex(tx, st.number); err != nil {
				return err
			}
		}
	}
	return nil
}
