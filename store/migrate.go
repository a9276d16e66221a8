package store

import (
	"context"
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
		versions, err := readVersions(tx)
		if err == nil {
			err = CheckVersions(versions, migrations)
		}
		if err != nil {
			return err
		}
		for _, m := range append([]Migration{own}, migrations...) {
			if err := m.apply(tx, versions[m.Package], len(versions) == 0); err != nil {
				return fmt.Errorf("migrate %s: %w", m.Package, err)
			}
		}
		return expireLeases(tx)
	})
}

// apply brings the tables of m, which have a version, up to date. fresh says that the database is
// new.
func (m Migration) apply(tx *Tx, version int, fresh bool) error {
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
	_, err := tx.Exec("INSERT INTO schema (package, version) VALUES ($1, $2) "+
		"ON CONFLICT (package) DO UPDATE SET version = excluded.version", m.Package, len(m.Steps))
	return err
}

// checkSchema reports an error unless the database has exactly this version. Without migrations
// every version is right.
func checkSchema(ctx context.Context, db *DB, migrations []Migration) error {
	if migrations == nil {
		return nil
	}
	versions, err := readVersions(db.Read(ctx))
	if err == nil {
		err = CheckVersions(versions, migrations)
	}
	if err != nil {
		return err
	}
	for _, m := range migrations {
		if versions[m.Package] < len(m.Steps) {
			return fmt.Errorf("%s: written by an older gateway; start the gateway to upgrade", m.Package)
		}
	}
	return nil
}

// readVersions returns the schema version of each package in a database. There is none if the first
// start of a gateway was killed, or has not come so far.
func readVersions(q Queryer) (map[string]int, error) {
	versions := make(map[string]int)
	var tables int
	err := q.QueryRow("SELECT count(*) FROM sqlite_schema WHERE name = 'schema'").Scan(&tables)
	if err != nil || tables == 0 {
		return versions, Wrap(err, "read schema")
	}
	err = Each(q, "read schema", func(scan Scan) error {
		var name string
		var version int
		err := scan(&name, &version)
		versions[name] = version
		return err
	}, "SELECT package, version FROM schema")
	return versions, err
}

// CheckVersions reports [ErrNewer] if migrations are too old to open a database with these
// versions, or lack one of its packages. If migrations is nil, CheckVersions checks only the tables
// of package store.
func CheckVersions(versions map[string]int, migrations []Migration) error {
	known := map[string]int{own.Package: len(own.Steps)}
	for _, m := range migrations {
		known[m.Package] = len(m.Steps)
	}
	for name, version := range versions {
		if _, ok := known[name]; version > known[name] && (ok || migrations != nil) {
			return fmt.Errorf("store: tables of package %s: %w", name, ErrNewer)
		}
	}
	return nil
}
