package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
)

// Shred removes the remains of deleted rows from the files, in small steps beside the writers.
// Writes wait some milliseconds while the write-ahead log is emptied. A database that was created
// before small steps were possible is rewritten once, and all writers wait. An error may mean that
// a long read is under way: then try again.
func (db *DB) Shred(ctx context.Context) error {
	return Wrap(db.shred(ctx), "store: shred")
}

func (db *DB) shred(ctx context.Context) error {
	select { // one Shred at a time: the reads of one would keep another from emptying the log
	case db.shredding <- struct{}{}:
		defer func() { <-db.shredding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	is, err := db.isIncremental(ctx)
	if err != nil {
		return err
	}
	if !is {
		err := db.write.exclusive(ctx, func(w *sql.DB) error {
			_, err := w.ExecContext(ctx, "PRAGMA auto_vacuum=INCREMENTAL; VACUUM")
			if err != nil {
				return err
			}
			db.rewritten.Store(true)
			return nil
		})
		if err != nil {
			return err
		}
		return db.emptyLog(ctx)
	}
	for more := true; more; {
		var err error
		if more, err = db.Shrink(ctx); err != nil {
			return err
		}
	}
	if err := db.scrub(ctx); err != nil {
		return err
	}
	return db.emptyLog(ctx)
}

// SQLite overwrites a deleted row in place (secure_delete). It leaves copies of the row in the
// unused space between the cells of a page, from earlier moves within and between pages. VACUUM
// removes them but blocks all writers, so scrub overwrites the unused space page by page.
//
// The page format is in https://sqlite.org/fileformat2.html, section 1.6.

// scrubPages is the number of pages that one transaction examines. It takes some milliseconds.
const scrubPages = 64

// mostPages is the maximum number of pages for which the first byte tells tree pages from overflow
// pages: an overflow page begins with the number of the next one.
const mostPages = 1 << 24

// scrub overwrites the unused space of all pages without blocking writers for long.
func (db *DB) scrub(ctx context.Context) error {
	var pages, size int64
	read := db.Read(ctx)
	err := read.QueryRow("PRAGMA page_count").Scan(&pages)
	if err == nil {
		err = read.QueryRow("PRAGMA page_size").Scan(&size)
	}
	if err == nil && pages >= mostPages {
		err = fmt.Errorf("the database has %d pages, and more than %d can't be cleaned: "+
			"stop the gateway and run VACUUM with sqlite3", pages, mostPages)
	}
	if err != nil {
		return err
	}
	for first := int64(1); first <= pages; first += scrubPages {
		if err := ctx.Err(); err != nil {
			return err
		}
		var found []int64
		for n := first; n < first+scrubPages && n <= pages; n++ {
			if _, changed, err := scrubbed(read, n, size); err != nil {
				return err
			} else if changed {
				found = append(found, n)
			}
		}
		if err := db.scrubSome(ctx, found, size); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) scrubSome(ctx context.Context, pages []int64, size int64) error {
	if len(pages) == 0 {
		return nil
	}
	return db.Tx(ctx, func(tx *Tx) error {
		for _, n := range pages {
			data, changed, err := scrubbed(tx, n, size) // the present content
			if err == nil && changed {
				_, err = tx.Exec("UPDATE sqlite_dbpage SET data = $1 WHERE pgno = $2", data, n)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// scrubbed returns a page with its unused space overwritten, and whether that changed anything.
func scrubbed(q Queryer, n, size int64) (data []byte, changed bool, err error) {
	if !hasCells(n, size) {
		return nil, false, nil
	}
	rows, err := q.Query("SELECT data FROM sqlite_dbpage WHERE pgno = $1", n)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	if !rows.Next() { // the file shrank in the meantime
		return nil, false, rows.Err()
	}
	if err := rows.Scan(&data); err != nil {
		return nil, false, err
	}
	changed = scrubPage(data, n == 1)
	return data, changed, rows.Err()
}

// hasCells reports whether a page of this number can be a b-tree page. From page 2 on, pointer map
// pages come at regular distances. SQLite never uses the page with the lock byte: a pointer map
// whose turn it is there is on the next page. With pages of 1024 bytes that is so.
func hasCells(n, size int64) bool {
	const lockByte = 1 << 30
	every, lock := size/5+1, lockByte/size+1
	if n == lock+1 && (lock-2)%every == 0 {
		return false
	}
	return n != lock && (n < 2 || (n-2)%every != 0)
}

// scrubPage overwrites the unused space of a b-tree page and reports whether that changed anything.
// It leaves pages alone that it does not understand.
func scrubPage(data []byte, first bool) (changed bool) {
	head := 0
	if first {
		head = 100 // size of the file header
	}
	if len(data) < head+12 {
		return false
	}
	cells := head + 8
	switch data[head] {
	case 2, 5: // interior pages
		cells += 4
	case 10, 13: // leaf pages
	default:
		return false
	}
	u16 := func(at int) int { return int(binary.BigEndian.Uint16(data[at:])) }
	begin, end := cells+2*u16(head+3), u16(head+5)
	if end == 0 {
		end = 1 << 16
	}
	if begin > end || end > len(data) {
		return false
	}
	wipe := func(from, to int) {
		for i := from; i < to; i++ {
			changed = changed || data[i] != 0
			data[i] = 0
		}
	}
	wipe(begin, end)
	for at, last := u16(head+1), 0; at > last && at >= end && at+4 <= len(data); {
		size := u16(at + 2)
		if at+size > len(data) {
			break
		}
		wipe(at+4, at+size)
		at, last = u16(at), at
	}
	return changed
}
