package store

import (
	"context"
	"fmt"
)

// shrinkPages is the number of pages that [DB.Shrink] moves in one transaction of some
// milliseconds.
const shrinkPages = 64

// incremental is the auto_vacuum mode that lets a database shrink in small steps.
const incremental = 2

// spare is the number of free pages that a database keeps for coming writes.
const spare = 256

// isIncremental reports whether the database can shrink in small steps. The connections that were
// open during a rewrite of the database do not notice that it can.
func (db *DB) isIncremental(ctx context.Context) (bool, error) {
	var mode int
	err := db.Read(ctx).QueryRow("PRAGMA auto_vacuum").Scan(&mode)
	return mode == incremental || db.rewritten.Load(), err
}

// Shrink returns some of the free pages to the file system and reports whether there are more. A
// database that an older gateway created only reuses its free pages, until the next [DB.Shred].
func (db *DB) Shrink(ctx context.Context) (more bool, err error) {
	var free int
	is, err := db.isIncremental(ctx)
	if err == nil {
		err = db.Read(ctx).QueryRow("PRAGMA freelist_count").Scan(&free)
	}
	if err == nil && is && free > spare {
		err = db.Tx(ctx, func(tx *Tx) error {
			return tx.script(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", shrinkPages))
		})
	}
	if err != nil {
		return false, fmt.Errorf("store: shrink: %w", err)
	}
	return is && free > spare+shrinkPages, nil
}

// Used returns the size of the content of the database in bytes, without free pages and the
// write-ahead log.
func (db *DB) Used(ctx context.Context) (int64, error) {
	var sum int64
	read := db.Read(ctx)
	for _, part := range []struct {
		pragma string
		sign   int64
	}{{"PRAGMA page_count", 1}, {"PRAGMA freelist_count", -1}} {
		var pages int64
		if err := read.QueryRow(part.pragma).Scan(&pages); err != nil {
			return 0, fmt.Errorf("store: size: %w", err)
		}
		sum += part.sign * pages
	}
	var page int64
	if err := read.QueryRow("PRAGMA page_size").Scan(&page); err != nil {
		return 0, fmt.Errorf("store: size: %w", err)
	}
	return max(sum, 0) * page, nil // a write in between may make the sum negative
}

// A TableSize is the size of a table with its indexes, in bytes.
type TableSize struct {
	Table string
	Bytes int64
}

// Largest returns the three largest tables, largest first. It reads the whole database, which may
// take long.
func (db *DB) Largest(ctx context.Context) ([]TableSize, error) {
	return Collect(db.Read(ctx), "store: largest tables", func(scan Scan, t *TableSize) error {
		return scan(&t.Table, &t.Bytes)
	}, `SELECT s.tbl_name, sum(d.pgsize)
		FROM dbstat d JOIN sqlite_schema s ON s.name = d.name WHERE d.aggregate = 1
		GROUP BY s.tbl_name ORDER BY 2 DESC LIMIT 3`)
}
