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
	Steps   []string // SQL; step i turns version i into i+1; never changed later
	// Tables is SQL that creates in an empty database what the first Version steps do together,
	// but faster. A new database gets it instead of them, unless Version is 0.
	Tables  string
	Version int
}

// ErrNewer reports a database that a newer version of the gateway has written.
var ErrNewer = errors.New("written by a newer gateway; upgrade this one or restore a backup")

// own creates the tables of this package.
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

// identity stands in migrations for the type of an id that the database assigns.
const identity = "IDENTITY PRIMARY KEY"

// migrate applies the migrations, and ends the leases of earlier processes. It writes nothing to a
// database that is up to date and was closed in order.
func migrate(ctx context.Context, db *DB, migrations []Migration) error {
	return db.txAtStart(ctx, false, func(tx *Tx) error {
		err := tx.script("CREATE TABLE IF NOT EXISTS schema " +
			"(package TEXT PRIMARY KEY, version INTEGER NOT NULL)")
		if err != nil {
			return err
		}
		var fresh bool
		if err := tx.QueryRow("SELECT count(*) = 0 FROM schema").Scan(&fresh); err != nil {
			return err
		}
		for _, m := range append([]Migration{own}, migrations...) {
			if err := m.apply(tx, fresh); err != nil {
				return fmt.Errorf("migrate %s: %w", m.Package, err)
			}
		}
		return expireLeases(tx)
	})
}

// apply brings the tables of m up to date. fresh says that the database is new.
func (m Migration) apply(tx *Tx, fresh bool) error {
	version, err := m.version(tx)
	if err != nil {
		return err
	}
	if version == len(m.Steps) {
		return nil
	}
	steps := m.Steps[version:]
	if fresh && m.Version > 0 && m.Version <= len(m.Steps) {
		steps = append([]string{m.Tables}, m.Steps[m.Version:]...)
	}
	for _, step := range steps {
		// With AUTOINCREMENT an id is never reused, even after the newest row was deleted.
		step = strings.ReplaceAll(step, identity, "INTEGER PRIMARY KEY AUTOINCREMENT")
		if err := tx.script(step); err != nil {
			return err
		}
	}
	_, err = tx.Exec("INSERT INTO schema (package, version) VALUES ($1, $2) "+
		"ON CONFLICT (package) DO UPDATE SET version = excluded.version", m.Package, len(m.Steps))
	return err
}

// version returns the schema version of the package, 0 if it has no tables yet, or [ErrNewer].
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

// checkSchema reports an error unless the database has exactly this version.
func checkSchema(ctx context.Context, db *DB, migrations []Migration) error {
	for _, m := range migrations {
		v, err := m.version(db.Read(ctx))
		if err != nil {
			return err
		}
		if v < len(m.Steps) {
			return fmt.Errorf("%s: written by an older gateway; start the gateway to upgrade", m.Package)
		}
	}
	return nil
}
