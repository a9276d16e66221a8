package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"time"

	"gateway/store"
)

// A Rebuilt is the result of [Memory.Rebuild].
type Rebuilt struct {
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
func (m *Memory) Rebuild(ctx context.Context, s Scope) (Rebuilt, error) {
	unlock, err := m.lock(ctx, s)
	if err != nil {
		return Rebuilt{}, m.In(s).wrap("rebuild", err)
	}
	defer unlock()
	r := rebuild{m: m, s: s, space: m.In(s)}
	err = r.run(ctx)
	return r.Rebuilt, m.In(s).wrap("rebuild", err)
}

// rebuild compares a file with the table.
type rebuild struct {
	Rebuilt
	m     *Memory
	s     Scope
	space *ScopedStore

	seen    map[int64]uint64 // cursors in the file, with the hashes of their entries
	fresh   map[int]int64    // lines that need a cursor, with the new cursor
	guarded map[int64]bool   // cursors in lines that can't be read
	unsure  bool             // an unreadable line has no cursor
}

func (r *rebuild) run(ctx context.Context) error {
	name := path.Join(string(r.s), historyFile)
	_, err := r.m.dir.Stat(name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if err := r.m.sync(ctx, r.s, !missing); err != nil || missing {
		return errors.Join(err, r.count(ctx))
	}
	err = r.m.db.Tx(ctx, func(tx *store.Tx) error { _, err := r.space.number(tx); return err })
	if err == nil {
		err = r.read(ctx, name, r.scan)
	}
	if err == nil && len(r.fresh) > 0 {
		if err = r.read(ctx, name, r.renew); err == nil {
			err = r.m.dir.Rename(name+renewing, name)
		}
	}
	if err == nil {
		err = r.read(ctx, name, r.compare)
	}
	return errors.Join(err, r.count(ctx))
}

// read calls do with the open file.
func (r *rebuild) read(ctx context.Context, name string, do func(context.Context, *os.File) error,
) error {
	f, err := r.m.dir.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, f), f.Close())
}

func (r *rebuild) count(ctx context.Context) error {
	return r.m.db.Read(ctx).QueryRow("SELECT count(*) FROM memory_entries WHERE scope = "+
		"(SELECT id FROM memory_scopes WHERE name = $1)", string(r.s)).Scan(&r.Entries)
}

// named finds the cursor in a line that is not JSON.
var named = regexp.MustCompile(`"?cursor"?\s*[:=]\s*"?([0-9]{1,15})`)

const maxBad = 100 // invalid lines that are reported

// scan records the cursors in the file, the lines that need one, and the lines that can't
// be read.
func (r *rebuild) scan(ctx context.Context, f *os.File) error {
	r.seen, r.guarded = make(map[int64]uint64), make(map[int64]bool)
	r.fresh = make(map[int]int64)
	var last int64
	err := readLines(f, func(l fileLine) error {
		e, err := decode(r.s, l.data, time.Time{})
		switch _, twice := r.seen[e.Cursor]; {
		case err != nil:
			r.bad(l, err)
		case e.Cursor == 0 || twice:
			r.fresh[l.number] = 0
		default:
			r.seen[e.Cursor] = r.hash(e)
			last = max(last, e.Cursor)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return r.m.ahead(ctx, r.s, last)
}

// bad records an unreadable line, and protects the entry that it may be from removal.
func (r *rebuild) bad(l fileLine, reason error) {
	if len(r.Bad) < maxBad {
		r.Bad = append(r.Bad, fmt.Sprintf("line %d: %v", l.number, reason))
	}
	m := named.FindSubmatch(l.data)
	if m == nil {
		r.unsure = true
		return
	}
	if cursor, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
		r.guarded[cursor] = true
	}
}

func (r *rebuild) hash(e Entry) uint64 {
	return maphash.String(r.m.seed,
		fmt.Sprintf("%d\x00%s\x00%s", e.Time.UnixMilli(), e.Session, e.Text))
}

// renewing is the suffix of a history file that is being rewritten.
const renewing = ".new"

// renew writes a new file with cursors in the lines that need one. Everything else stays
// unchanged.
func (r *rebuild) renew(ctx context.Context, f *os.File) error {
	next, err := r.reserve(ctx, int64(len(r.fresh)))
	if err != nil {
		return err
	}
	name := path.Join(string(r.s), historyFile+renewing)
	temp, err := r.m.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(r.copyWith(f, temp, next), temp.Sync(), temp.Close())
	if err != nil {
		return errors.Join(err, r.m.dir.Remove(name))
	}
	return nil
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
		if err := r.m.sync(ctx, r.s, true); err != nil {
			return 0, err
		}
	}
}

// copyWith copies the file and gives the lines that need a cursor the cursors from next
// on.
func (r *rebuild) copyWith(f *os.File, to io.Writer, next int64) error {
	var at int64 // offset up to which the file is copied
	now := r.m.now()
	err := readLines(f, func(l fileLine) error {
		if _, ok := r.fresh[l.number]; !ok {
			return nil
		}
		e, err := decode(r.s, l.data, now)
		if err != nil {
			return err
		}
		e.Cursor, next = next, next+1
		data, err := encode(r.s, e)
		if err != nil {
			return err
		}
		r.seen[e.Cursor] = r.hash(e)
		if _, err := io.Copy(to, io.NewSectionReader(f, at, l.at-at)); err != nil {
			return err
		}
		at = l.at + l.size
		_, err = to.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(f, at, 1<<62-at))
	return err
}

// pageSize is how many rows are changed in one transaction.
const pageSize = 200

// compare makes the table equal to the file.
func (r *rebuild) compare(ctx context.Context, f *os.File) error {
	differ, gone, err := r.differences(ctx)
	if err != nil {
		return err
	}
	var batch []Entry
	apply := func() error {
		err := r.m.db.Tx(ctx, func(tx *store.Tx) error { return r.space.replace(tx, batch) })
		batch = batch[:0]
		return err
	}
	err = readLines(f, func(l fileLine) error {
		e, err := decode(r.s, l.data, time.Time{})
		if err != nil || !differ[e.Cursor] || r.hash(e) != r.seen[e.Cursor] {
			return nil // reported by scan
		}
		delete(differ, e.Cursor)
		if batch = append(batch, e); len(batch) == pageSize {
			return apply()
		}
		return nil
	})
	if err == nil {
		err = apply()
	}
	for len(gone) > 0 && err == nil {
		n := min(len(gone), pageSize)
		err = r.m.db.Tx(ctx, func(tx *store.Tx) error { return r.space.remove(tx, gone[:n]) })
		gone = gone[n:]
	}
	return err
}

// differences returns the cursors of entries that are new or changed in the file, and of
// entries that the file no longer has.
func (r *rebuild) differences(
	ctx context.Context,
) (differ map[int64]bool, gone []int64, err error) {
	q := r.m.db.Read(ctx)
	st, err := r.space.state(q)
	if err != nil {
		return nil, nil, err
	}
	differ = make(map[int64]bool, len(r.fresh))
	for cursor := range r.seen {
		differ[cursor] = true
	}
	for at := int64(0); ; {
		page, err := r.space.Entries(q, at, pageSize)
		if err != nil {
			return nil, nil, err
		}
		if len(page) == 0 {
			r.Added = len(differ) - r.Changed
			r.Removed = len(gone)
			return differ, gone, nil
		}
		for _, e := range page {
			at = e.Cursor
			switch hash, ok := r.seen[at]; {
			case ok && hash == r.hash(e):
				delete(differ, at)
			case ok:
				r.Changed++
			case at <= st.synced && !r.unsure && !r.guarded[at]:
				gone = append(gone, at)
			}
		}
	}
}

// replace writes entries with their cursors, and overwrites existing ones.
func (s *ScopedStore) replace(tx *store.Tx, entries []Entry) error {
	st, err := s.state(tx)
	if err != nil {
		return err
	}
	cursors := make([]int64, len(entries))
	for i, e := range entries {
		cursors[i] = e.Cursor
	}
	if err := s.remove(tx, cursors); err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.m.insertEntry(tx, st.number, e); err != nil {
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
			if err := s.m.unindex(tx, row.id, st.number, row.doc); err != nil {
				return err
			}
		}
	}
	return nil
}
