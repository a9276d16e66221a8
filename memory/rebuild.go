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

// A Rebuilt says what [Memory.Rebuild] has found.
type Rebuilt struct {
	Entries int      // that there are now
	Changed int      // whose text, time or session was another one
	Added   int      // that the table did not have
	Removed int      // that the file has no more
	Bad     []string // lines that are not entries, with their numbers; they stay in the file
}

// Rebuild makes the entries of a scope what a person has made of its history file: lines may be
// changed, removed, added and moved. A line that has no cursor of its own gets one, in the file,
// too. An entry that is missing stays if a line that can't be read may be the one it was in.
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

// A rebuild is a file that is compared with the table.
type rebuild struct {
	Rebuilt
	m     *Memory
	s     Scope
	space *ScopedStore

	seen    map[int64]uint64 // cursors of the file, and the hashes of their entries
	fresh   map[int]int64    // lines that need a cursor, and the one they get
	guarded map[int64]bool   // cursors that lines name which can't be read
	unsure  bool             // there is such a line that names none
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

const maxBad = 100 // of the lines that are reported

// scan notes which cursors the file has, and which lines need one or can't be read.
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

// bad notes a line that can't be read, and spares the entry that it may be.
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

// renewing is what the name of a history file ends with while it is written anew.
const renewing = ".new"

// renew writes the file anew beside it, with cursors in the lines that need one. Everything else
// stays as it is.
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

// reserve gives out n cursors for lines of the file and returns the first.
func (r *rebuild) reserve(ctx context.Context, n int64) (next int64, err error) {
	for {
		// An entry that the file lacks must not have a lower one: nobody would miss it there.
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

// copyWith copies the file and gives the lines that need one the cursors from next on.
func (r *rebuild) copyWith(f *os.File, to io.Writer, next int64) error {
	var at int64 // up to which it is copied
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

// compare makes the table what the file is.
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
			return nil // is reported
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

// differences returns the cursors of entries that are new or other in the file, and of those that
// are no more in it.
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

// replace writes entries that have their cursors, over those that are there.
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

// remove removes entries.
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
