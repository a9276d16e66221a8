package memory

import (
	"context"
	"fmt"
	"time"

	"gateway/store"
)

// settleTime is the duration of one transaction of [Memory.FinishDetached]. Other writers get
// their turn in between.
const settleTime = 5 * time.Millisecond

// detached is the set of rows detached from a scope. No search finds them.
type detached struct {
	number  int64 // of that scope
	dreamed bool  // Dream had read all of them
}

// detach detaches the rows of a scope from its name. [Memory.FinishDetached] later moves them to
// target, or deletes them if target is "".
func detach(tx *store.Tx, of state, target Scope) error {
	_, err := tx.Exec("INSERT INTO memory_rests (scope, target, dreamed) VALUES ($1, $2, $3)",
		of.number, string(target), of.dreamed >= of.last)
	if err == nil {
		_, err = tx.Exec("DELETE FROM memory_scopes WHERE id = $1", of.number)
	}
	return err
}

// FinishDetached deletes the rows that [ScopedStore.Erase] has detached, and moves those that
// [Memory.Merge] has detached, in many short transactions. It does nothing if no rows are
// detached.
func (m *Memory) FinishDetached(ctx context.Context) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := m.db.Tx(ctx, func(tx *store.Tx) (err error) {
			more, err = m.settleSome(tx)
			return err
		})
		if err != nil {
			return fmt.Errorf("memory: settle: %w", err)
		}
	}
	return nil
}

// settleSome works on the first detached scope until settleTime is over, and reports whether there
// may be more to do.
func (m *Memory) settleSome(tx *store.Tx) (more bool, err error) {
	var d detached
	var name Scope
	err = tx.QueryRow("SELECT scope, target, dreamed FROM memory_rests ORDER BY scope LIMIT 1").
		Scan(&d.number, &name, &d.dreamed)
	if err != nil {
		return false, store.Optional(err)
	}
	var target *ScopedStore
	if name != "" {
		target = m.In(name)
	}
	_, err = d.settle(tx, target, settleTime)
	return true, err
}

// settle works on some of the rows until limit is over. It moves them to target, or deletes them if
// target is nil. It reports whether none are left.
func (d detached) settle(
	tx *store.Tx, target *ScopedStore, limit time.Duration,
) (done bool, err error) {
	to := state{}
	if target != nil {
		_, err := target.number(tx)
		if err == nil {
			to, err = target.state(tx)
		}
		if err != nil {
			return false, err
		}
	}
	page, err := d.page(tx)
	if done = len(page) == 0; err == nil && done {
		_, err = tx.Exec("DELETE FROM memory_rests WHERE scope = $1", d.number)
	}
	began := time.Now()
	for i := 0; i < len(page) && err == nil && time.Since(began) < limit; i++ {
		row := page[i]
		if err := row.unindex(tx, d.number); err != nil {
			return false, err
		}
		if target == nil {
			_, err = tx.Exec("DELETE FROM "+rowKinds[row.doc.kind].table+" WHERE id = $1", row.id)
		} else {
			err = to.take(tx, row, d.dreamed)
		}
	}
	return done, err
}

// page returns some of the rows, all of one kind. Entries are ordered by time.
func (d detached) page(tx *store.Tx) ([]indexed, error) {
	for _, kind := range kinds {
		page, err := rowsAfter(tx, d.number, kind, 0)
		if kind == KindEntry && err == nil && len(page) > 0 {
			page, err = collect(tx, scanRow(kind), "SELECT id, time_ms, session, text "+
				"FROM memory_entries WHERE scope = $1 ORDER BY time_ms, cursor LIMIT 64", d.number)
		}
		if err != nil || len(page) > 0 {
			return page, err
		}
	}
	return nil, nil
}

// take appends a row, which was removed from the index, to the scope. dreamed says that Dream had
// read all rows beside it.
func (st *state) take(tx *store.Tx, row indexed, dreamed bool) error {
	if row.doc.kind == KindFact {
		return factTable{st.number}.take(tx, row.id)
	}
	if row.doc.kind == KindMessage {
		n, err := tx.Exec(`DELETE FROM memory_messages WHERE id = $1 AND EXISTS
			(SELECT 1 FROM memory_messages t WHERE t.scope = $2 AND t.message = memory_messages.message)`,
			row.id, st.number)
		if err != nil || n > 0 {
			return err // the scope has this message already
		}
		_, err = tx.Exec("UPDATE memory_messages SET scope = $1 WHERE id = $2", st.number, row.id)
		if err == nil {
			_, err = tx.Exec("UPDATE memory_scopes SET messages = messages + 1 WHERE id = $1", st.number)
		}
		if err != nil {
			return err
		}
		return row.index(tx, st.number)
	}
	dreamed = dreamed && st.dreamed >= st.last
	st.last++
	if dreamed {
		st.dreamed = st.last
	}
	_, err := tx.Exec("UPDATE memory_entries SET scope = $1, cursor = $2 WHERE id = $3",
		st.number, st.last, row.id)
	if err == nil {
		_, err = tx.Exec("UPDATE memory_scopes SET last = $1, dreamed = $2 WHERE id = $3",
			st.last, st.dreamed, st.number)
	}
	if err != nil {
		return err
	}
	return row.index(tx, st.number)
}

// indexDetached indexes the detached rows, because [Memory.FinishDetached] later removes them
// from the index.
func indexDetached(tx *store.Tx) error {
	numbers, err := collect(tx, column[int64], "SELECT scope FROM memory_rests")
	for i := 0; i < len(numbers) && err == nil; i++ {
		err = indexScope(tx, numbers[i])
	}
	return err
}
