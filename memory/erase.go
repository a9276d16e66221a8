package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"gateway/store"
)

// Erase makes everything in the scope unreachable: no search finds it afterwards. It
// leaves the rows to [Memory.FinishDetached] and the folder to [Memory.EraseFiles]. If the process
// ends before those have run, the next process runs them.
func (s *ScopedStore) Erase(tx *store.Tx) error {
	st, err := s.state(tx)
	if err == nil {
		_, err = tx.Exec("UPDATE memory_rests SET target = '' WHERE target = $1", string(s.scope))
	}
	if err == nil && st.number != 0 {
		err = detach(tx, st, "")
	}
	if err != nil {
		return s.scope.wrap("erase", err)
	}
	return s.scope.wrap("erase", recordLeftover(tx, s.scope, ""))
}

// Reindex rebuilds the index of all scopes in one transaction. Operators use it when the
// index is damaged. It blocks all other writers.
func (m *Memory) Reindex(ctx context.Context) error {
	scopes, err := m.names(ctx, "SELECT name FROM memory_scopes")
	if err != nil {
		return err
	}
	err = m.db.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO memory_index (memory_index) VALUES ('delete-all')")
		if err != nil {
			return err
		}
		for _, name := range scopes {
			st, err := m.In(name).state(tx)
			if err == nil {
				err = indexScope(tx, st.number)
			}
			if err != nil {
				return err
			}
		}
		return indexDetached(tx)
	})
	return store.Wrap(err, "memory: reindex")
}

// recordLeftover records that the files of a scope must still be removed. merged is the scope that
// has its history now, "" if it is erased.
func recordLeftover(tx *store.Tx, of, merged Scope) error {
	// An erased folder must be removed even if its history was merged before.
	_, err := tx.Exec(`INSERT INTO memory_leftovers (name, merged) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET merged = excluded.merged
		WHERE memory_leftovers.merged <> ''`, string(of), string(merged))
	return err
}

// EraseFiles removes the folder of a scope that [ScopedStore.Erase] has emptied. It does
// nothing if the folder was removed before.
func (m *Memory) EraseFiles(ctx context.Context, s Scope) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return s.wrap("erase the files of", err)
	}
	defer unlock()
	return s.wrap("erase the files of", m.folder(s).finish(ctx))
}

// finish removes the files that [ScopedStore.Erase] or [Memory.Merge] has left in the folder.
func (d folder) finish(ctx context.Context) error {
	s := d.space.scope
	if _, err := ParseScope(string(s)); err != nil {
		return err
	}
	merged, err := collect(d.db.Read(ctx), column[Scope],
		"SELECT merged FROM memory_leftovers WHERE name = $1", string(s))
	if err != nil || len(merged) == 0 {
		return err
	}
	if merged[0] == "" {
		if err := d.dir.RemoveAll(string(s)); err != nil {
			return err
		}
	}
	for _, name := range []string{d.history(), d.history() + ".new"} {
		if err := d.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return d.db.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("DELETE FROM memory_leftovers WHERE name = $1", string(s))
		return err
	})
}

// mergeTime is how long [Memory.Merge] moves rows. Other writers wait meanwhile.
const mergeTime = 100 * time.Millisecond

// Merge moves everything of one scope into another when both turn out to belong to the
// same person. Few rows move at once, the others with [Memory.FinishDetached]. If both scopes
// have a fact with the same key, the newer fact keeps the key and the other is renamed
// "KEY (2)". The moved entries follow the existing ones, ordered by time. Dream reads them
// again unless it had read both histories completely. Merge may exceed [MaxFacts]. After
// the commit, call [Memory.FinishDetached] and [Memory.MergeFiles].
func (m *Memory) Merge(tx *store.Tx, from, to Scope) error {
	source, target := m.In(from), m.In(to)
	if from == to {
		return from.wrap("merge", errors.New("into itself"))
	}
	old, err := source.state(tx)
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE memory_rests SET target = $1 WHERE target = $2", string(to), string(from))
	if err != nil || old.number == 0 {
		return from.wrap("merge", err)
	}
	err = detach(tx, old, to)
	// Most people have few rows: the next prompt then sees them.
	d := detached{number: old.number, dreamed: old.dreamed >= old.last}
	began, done := time.Now(), false
	for left := mergeTime; err == nil && !done && left > 0; left = mergeTime - time.Since(began) {
		done, err = d.settle(tx, target, left)
	}
	if err == nil {
		err = recordLeftover(tx, from, to)
	}
	return from.wrap(fmt.Sprintf("merge into %s", to), err)
}

// MergeFiles updates the history files after [Memory.Merge]: it appends the lines of from
// to the file of to, and removes the file of from. [Memory.SyncAll] does the same.
func (m *Memory) MergeFiles(ctx context.Context, from, to Scope) error {
	if err := m.Sync(ctx, to); err != nil {
		return err
	}
	return m.Sync(ctx, from) // leaves no file, unless entries were added since
}

// Export writes the facts and entries of a scope as lines of JSON, after a header line.
func (m *Memory) Export(ctx context.Context, s Scope, w io.Writer) error {
	space, q := m.In(s), m.db.Read(ctx)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	head := struct {
		Export string    `json:"export"`
		Scope  Scope     `json:"scope"`
		Time   time.Time `json:"time"`
	}{"memory", s, m.now().UTC()}
	st, err := space.state(q)
	if err != nil {
		return s.wrap("export", err)
	}
	facts, err := factTable{st.number}.list(q, allQuery)
	if err == nil {
		err = enc.Encode(head)
	}
	for _, f := range facts {
		if err == nil {
			err = enc.Encode(map[string]Fact{"fact": f})
		}
	}
	for at := int64(0); err == nil; {
		var page []Entry
		page, err = space.Entries(q, at, pageSize)
		if err == nil && len(page) == 0 {
			return nil
		}
		for _, e := range page {
			at = e.Cursor
			if err == nil {
				err = enc.Encode(map[string]line{"entry": {at, e.Time.UTC(), s, e.Session, e.Text}})
			}
		}
	}
	return s.wrap("export", err)
}
