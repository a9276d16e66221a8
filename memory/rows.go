package memory

import (
	"time"

	"gateway/store"
)

// indexed is a row of any kind together with its content in the index.
type indexed struct {
	id  int64
	doc doc
}

// index adds the row to the index, as one of the scope with the number.
func (r indexed) index(tx *store.Tx, number int64) error {
	_, err := tx.Exec("INSERT INTO memory_index (rowid, terms) VALUES ($1, $2)",
		rowid(r.doc.kind, r.id), r.doc.words(number))
	return err
}

// unindex removes the row from the index. Its doc must be the one with which it was added.
func (r indexed) unindex(tx *store.Tx, number int64) error {
	_, err := tx.Exec("INSERT INTO memory_index (memory_index, rowid, terms) "+
		"VALUES ('delete', $1, $2)", rowid(r.doc.kind, r.id), r.doc.words(number))
	return err
}

// scanRow reads the id, time, session and text of an entry or message.
func scanRow(kind Kind) func(scan func(...any) error) (indexed, error) {
	return func(scan func(...any) error) (row indexed, err error) {
		var ms int64
		row.doc.kind = kind
		err = scan(&row.id, &ms, &row.doc.session, &row.doc.text)
		row.doc.time = time.UnixMilli(ms)
		return row, err
	}
}

var kinds = []Kind{KindFact, KindEntry, KindMessage}

// pageSize is how many rows are read or changed at once.
const pageSize = 200

// rowsAfter returns up to pageSize rows of a kind after an id, of the scope with the number.
func rowsAfter(q store.Queryer, number int64, kind Kind, after int64) ([]indexed, error) {
	columns, read := "id, "+rowKinds[kind].doc, scanRow(kind)
	if kind == KindFact {
		columns, read = factColumns, func(scan func(...any) error) (indexed, error) {
			f, err := scanFact(scan)
			return f.row(), err
		}
	}
	return collect(q, read, "SELECT "+columns+" FROM "+rowKinds[kind].table+
		" WHERE scope = $1 AND id > $2 ORDER BY id LIMIT $3", number, after, pageSize)
}

// eachRow calls do with all rows of a kind, of the scope with the number.
func eachRow(q store.Queryer, number int64, kind Kind, do func(indexed) error) error {
	for after := int64(0); ; {
		page, err := rowsAfter(q, number, kind, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, row := range page {
			if err := do(row); err != nil {
				return err
			}
		}
		after = page[len(page)-1].id
	}
}

// indexScope adds all rows of the scope with the number to the index.
func indexScope(tx *store.Tx, number int64) error {
	for _, kind := range kinds {
		err := eachRow(tx, number, kind, func(r indexed) error { return r.index(tx, number) })
		if err != nil {
			return err
		}
	}
	return nil
}
