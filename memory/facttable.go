package memory

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"gateway/store"
	"gateway/store/plaintext"
)

// A factTable holds the facts of one scope, in the table and in the index.
type factTable struct {
	number int64 // of the scope
}

// count returns the number of facts.
func (t factTable) count(q store.Queryer) (n int, err error) {
	err = q.QueryRow("SELECT count(*) FROM memory_facts WHERE scope = $1", t.number).Scan(&n)
	return n, err
}

// get returns the fact with a key, or nil if it does not exist.
func (t factTable) get(q store.Queryer, key string) (*storedFact, error) {
	f, err := scanFact(q.QueryRow("SELECT "+factColumns+" FROM memory_facts "+
		"WHERE scope = $1 AND folded = $2", t.number, foldKey(key)).Scan)
	if err != nil {
		return nil, store.Optional(err)
	}
	return &f, nil
}

// list returns the facts of a query that selects factColumns. Its first argument is the number of
// the scope.
func (t factTable) list(q store.Queryer, query string, args ...any) ([]Fact, error) {
	return collect(q, func(scan store.Scan) (Fact, error) {
		f, err := scanFact(scan)
		return f.Fact, err
	}, query, append([]any{t.number}, args...)...)
}

const (
	allQuery    = "SELECT " + factColumns + " FROM memory_facts WHERE scope = $1 ORDER BY id"
	pinnedQuery = "SELECT " + factColumns + " FROM memory_facts " +
		"WHERE scope = $1 AND pinned = 1 ORDER BY folded"
)

// put stores f instead of old, which is nil for a new fact.
func (t factTable) put(tx *store.Tx, old *storedFact, f Fact) error {
	tags, err := json.Marshal(f.Tags)
	if err != nil {
		return err
	}
	args := []any{t.number, foldKey(f.Key), f.Key, f.Value, f.Category, string(tags), f.Importance,
		f.Pinned, f.Created.UnixMilli(), f.Used.UnixMilli()}
	next := storedFact{Fact: f}
	if old == nil {
		err = tx.QueryRow(`INSERT INTO memory_facts (scope, folded, key, value, category, tags,
				importance, pinned, created_ms, used_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id`, args...).Scan(&next.id)
	} else {
		if err := old.row().unindex(tx, t.number); err != nil {
			return err
		}
		next.id = old.id
		_, err = tx.Exec(`UPDATE memory_facts SET scope = $1, folded = $2, key = $3, value = $4,
				category = $5, tags = $6, importance = $7, pinned = $8, created_ms = $9, used_ms = $10
			WHERE id = $11`, append(args, old.id)...)
	}
	if err != nil {
		return err
	}
	return next.row().index(tx, t.number)
}

// remove removes a fact.
func (t factTable) remove(tx *store.Tx, f *storedFact) error {
	if err := f.row().unindex(tx, t.number); err != nil {
		return err
	}
	_, err := tx.Exec("DELETE FROM memory_facts WHERE id = $1", f.id)
	return err
}

// take moves a fact of another scope, which was removed from the index, into the table. Of two
// facts with one key the newer keeps it.
func (t factTable) take(tx *store.Tx, id int64) error {
	moved, err := scanFact(tx.QueryRow("DELETE FROM memory_facts WHERE id = $1 RETURNING "+
		factColumns, id).Scan)
	if err != nil {
		return err
	}
	f := moved.Fact
	there, err := t.get(tx, f.Key)
	if err != nil {
		return err
	}
	if there != nil && there.Created.Before(f.Created) {
		if err := t.put(tx, there, f); err != nil {
			return err
		}
		f = there.Fact
	}
	if there != nil {
		if f.Key, err = t.freeKey(tx, f.Key); err != nil {
			return err
		}
	}
	return t.put(tx, nil, f)
}

// freeKey returns an unused key that is similar to the given one.
func (t factTable) freeKey(q store.Queryer, key string) (string, error) {
	for n := 2; ; n++ {
		suffix := fmt.Sprintf(" (%d)", n)
		free := plaintext.Cut(key, maxKey-len(suffix)) + suffix
		there, err := t.get(q, free)
		if err != nil || there == nil {
			return free, err
		}
	}
}

// storedFact is a fact with its row id.
type storedFact struct {
	Fact
	id int64
}

// doc returns the content of a fact in the index.
func (f storedFact) doc() doc {
	return doc{kind: KindFact, text: strings.Join(
		append([]string{f.Key, f.Value, f.Category}, f.Tags...), "\n")}
}

// row returns the fact as a row of the index.
func (f storedFact) row() indexed { return indexed{f.id, f.doc()} }

const factColumns = "id, key, value, category, tags, importance, pinned, created_ms, used_ms"

func scanFact(scan func(...any) error) (f storedFact, err error) {
	var tags []byte
	var created, used int64
	err = scan(&f.id, &f.Key, &f.Value, &f.Category, &tags, &f.Importance, &f.Pinned, &created, &used)
	if err == nil {
		err = json.Unmarshal(tags, &f.Tags)
	}
	f.Created, f.Used = time.UnixMilli(created), time.UnixMilli(used)
	return f, err
}
