package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// A Migration brings the tables of one package up to date.
type Migration struct {
	Package string
	Steps   []string // SQL scripts; step i makes version i+1 out of version i; never changed later
}

// ErrNewer reports a database that a later version of the gateway has written.
var ErrNewer = errors.New("written by a newer gateway; upgrade this one or restore a backup")

// own are the tables of this package.
var own = Migration{Package: "store", Steps: []string{`
CREATE TABLE leases (
	name     TEXT PRIMARY KEY,
	owner    TEXT NOT NULL,
	epoch    BIGINT NOT NULL,
	until_ms BIGINT NOT NULL
);`, `
CREATE TABLE lives (
	id         IDENTITY PRIMARY KEY,
	started_ms BIGINT NOT NULL,
	ended_ms   BIGINT NOT NULL DEFAULT 0, -- in order; 0: not yet, or never
	suspect    TEXT NOT NULL DEFAULT ''   -- what is tried alone just now, or ''
);`}}

// identity is what migrations write for a row id that the database counts up.
const identity = "IDENTITY PRIMARY KEY"

func migrate(ctx context.Context, db *DB, migrations []Migration) error {
	return db.Tx(ctx, func(tx *Tx) error {
		err := tx.script("CREATE TABLE IF NOT EXISTS schema " +
			"(package TEXT PRIMARY KEY, version INTEGER NOT NULL)")
		if err != nil {
			return err
		}
		for _, m := range append([]Migration{own}, migrations...) {
			if err := m.apply(tx); err != nil {
				return fmt.Errorf("migrate %s: %w", m.Package, err)
			}
		}
		return nil
	})
}

func (m Migration) apply(tx *Tx) error {
	version, err := m.version(tx)
	if err != nil {
		return err
	}
	if version == len(m.Steps) {
		return nil
	}
	for _, step := range m.Steps[version:] {
		// AUTOINCREMENT: an id is never given twice, also when the newest row was deleted.
		step = strings.ReplaceAll(step, identity, "INTEGER PRIMARY KEY AUTOINCREMENT")
		if err := tx.script(step); err != nil {
			return err
		}
	}
	_, err = tx.Exec("INSERT INTO schema (package, version) VALUES ($1, $2) "+
		"ON CONFLICT (package) DO UPDATE SET version = excluded.version", m.Package, len(m.Steps))
	return err
}

// version returns the version of the package's tables, 0 if there are none, or [ErrNewer].
func (m Migration) version(q Queryer) (int, error) {
	var v int
	err := q.QueryRow("SELECT version FROM schema WHERE package = $1", m.Package).Scan(&v)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if v > len(m.Steps) {
		return 0, ErrNewer
	}
	return v, nil
}

// checkSchema refuses a database that is not of exactly this version.
func checkSchema(ctx context.Context, db *DB, migrations []Migration) error {
	for _, m := range migrations {
		v, err := m.version(db.Read(ctx))
		if err != nil {
			return err
		}
		if v < len(m.Steps) {
			return fmt.Errorf("%s: written by an older gateway; start the gateway once", m.Package)
		}
	}
	return nil
}
