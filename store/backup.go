package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Copy writes a consistent snapshot of the SQLite database at from to the new file at to, and
// verifies the copy. The database need not be one of a [DB]. Writers do not wait meanwhile, but the
// write-ahead log of the database can't shrink until Copy returns.
func Copy(ctx context.Context, from, to string) error {
	if _, err := os.Stat(from); err != nil { // SQLite would create a missing file
		return fmt.Errorf("store: copy %s: %w", from, err)
	}
	err := withFile(ctx, from, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "VACUUM INTO $1", to)
		return err
	})
	if err == nil {
		err = errors.Join(os.Chmod(to, 0o600), verify(ctx, to))
	}
	return Wrap(err, "store: copy %s", from)
}

// verify reads the whole SQLite database at path and reports any damage.
func verify(ctx context.Context, path string) error {
	return withFile(ctx, path, func(db *sql.DB) error {
		found, err := Collect(inspector{ctx, db}, "check", func(scan Scan, line *string) error {
			return scan(line)
		}, "PRAGMA integrity_check(5)")
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0] != "ok" {
			return fmt.Errorf("the database is damaged: %s", strings.Join(found, "; "))
		}
		return nil
	})
}

// Versions returns the schema version of each package in the database at path.
func Versions(ctx context.Context, path string) (map[string]int, error) {
	var versions map[string]int
	err := withFile(ctx, path, func(db *sql.DB) (err error) {
		versions, err = readVersions(inspector{ctx, db})
		return err
	})
	return versions, Wrap(err, "store: versions of %s", path)
}

// Inspect calls fn with a reader of the SQLite database at path, which another program has made and
// which may be damaged or hostile. Inspect runs no code of the database and changes nothing in it
// but to apply its write-ahead log, so path should name a copy. fn must end one query before the
// next.
func Inspect(ctx context.Context, path string, fn func(Queryer) error) error {
	return withFile(ctx, path, func(db *sql.DB) error { return fn(inspector{ctx, db}) },
		"query_only(1)", "trusted_schema(0)", "cell_size_check(1)", "mmap_size(0)")
}

type inspector struct {
	ctx context.Context // of this call
	db  *sql.DB
}

func (i inspector) Query(query string, args ...any) (*sql.Rows, error) {
	return i.db.QueryContext(i.ctx, query, args...)
}

func (i inspector) QueryRow(query string, args ...any) *sql.Row {
	return i.db.QueryRowContext(i.ctx, query, args...)
}

// withFile calls fn with a new connection to the database at path.
func withFile(
	ctx context.Context, path string, fn func(db *sql.DB) error, pragmas ...string,
) error {
	db, err := sql.Open("sqlite", dsn(path, append(pragmas, "busy_timeout(10000)")...))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	err = db.PingContext(ctx)
	if err == nil {
		err = fn(db)
	}
	return errors.Join(err, db.Close())
}
