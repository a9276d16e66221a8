package store

import (
	"context"
	"fmt"
	"os"
)

// shrinkPages is how many pages [DB.Shrink] moves at once: a transaction of some milliseconds.
const shrinkPages = 64

// spare is how many free pages a database keeps: what will be written next needs no new ones.
const spare = 256

// Shrink gives some of the pages that nothing uses back to the file system, and reports whether
// there are more. Databases that were made before this was possible only use theirs again, until
// the start after the next [DB.Shred].
func (db *DB) Shrink(ctx context.Context) (more bool, err error) {
	var mode, free int
	read := db.Read(ctx)
	err = read.QueryRow("PRAGMA auto_vacuum").Scan(&mode)
	if err == nil {
		err = read.QueryRow("PRAGMA freelist_count").Scan(&free)
	}
	const incremental = 2
	if err == nil && mode == incremental && free > spare {
		err = db.Tx(ctx, func(tx *Tx) error {
			return tx.script(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", shrinkPages))
		})
	}
	if err != nil {
		return false, fmt.Errorf("store: shrink: %w", err)
	}
	return mode == incremental && free > spare+shrinkPages, nil
}

// Size returns the size of the database with its write-ahead log, in bytes.
func (db *DB) Size() (int64, error) {
	var total int64
	for _, path := range []string{db.path, db.path + "-wal"} {
		info, err := os.Stat(path)
		if err != nil && !os.IsNotExist(err) {
			return 0, fmt.Errorf("store: size: %w", err)
		}
		if err == nil {
			total += info.Size()
		}
	}
	return total, nil
}
