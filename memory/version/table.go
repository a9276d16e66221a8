package version

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gateway/store"
)

// Migration creates the tables of this package.
var Migration = store.Migration{Package: "version", Steps: []string{`
CREATE TABLE versions (
	id      IDENTITY PRIMARY KEY,
	tree    TEXT NOT NULL,
	name    TEXT NOT NULL, -- hexadecimal
	time_ms BIGINT NOT NULL,
	author  TEXT NOT NULL,
	reason  TEXT NOT NULL,
	change  TEXT NOT NULL, -- '' if it has no ID
	UNIQUE (tree, name)
);
CREATE UNIQUE INDEX versions_change ON versions (tree, change) WHERE change <> '';
CREATE TABLE version_files ( -- the files that a version changed
	tree    TEXT NOT NULL,
	file    BLOB NOT NULL,
	version BIGINT NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
	text    BLOB, -- NULL: the version removed the file
	PRIMARY KEY (tree, file, version)
);
CREATE INDEX version_files_version ON version_files (version);`}}

// row is a version with its row id.
type row struct {
	id int64
	Version
}

const columns = "SELECT id, name, time_ms, author, reason, change FROM versions WHERE tree = $1"

// rows returns the versions that match a condition.
func (t *Tree) rows(q store.Queryer, condition string, args ...any) ([]row, error) {
	return store.Collect(q, "version: read "+t.name, func(scan store.Scan, r *row) error {
		var ms int64
		err := scan(&r.id, &r.ID, &ms, &r.Author, &r.Reason, &r.Change)
		r.Time = time.UnixMilli(ms)
		return err
	}, columns+condition, append([]any{t.name}, args...)...)
}

// newest returns the row id of the newest version, 0 if there is none.
func (t *Tree) newest(q store.Queryer) (id int64, err error) {
	var last sql.NullInt64
	err = q.QueryRow("SELECT max(id) FROM versions WHERE tree = $1", t.name).Scan(&last)
	return last.Int64, store.Wrap(err, "version: read %s", t.name)
}

// state returns the files after the version with a row id. That is the newest entry of each file up
// to that version, except files that it removed.
func (t *Tree) state(q store.Queryer, id int64) (snapshot, error) {
	s := make(snapshot)
	return s, store.Each(q, "version: read "+t.name, func(scan store.Scan) error {
		var file, text []byte
		err := scan(&file, &text)
		s[string(file)] = string(text)
		return err
	}, "SELECT f.file, f.text FROM (SELECT file, max(version) AS version "+
		"FROM version_files WHERE tree = $1 AND version <= $2 GROUP BY file) AS last "+
		"JOIN version_files f ON f.tree = $1 AND f.file = last.file AND f.version = last.version "+
		"WHERE f.text IS NOT NULL", t.name, id)
}

// has reports whether the history has a change with an ID.
func (t *Tree) has(q store.Queryer, change string) (bool, error) {
	var id int64
	err := q.QueryRow("SELECT id FROM versions WHERE tree = $1 AND change = $2",
		t.name, change).Scan(&id)
	return err == nil, store.Wrap(store.Optional(err), "version: look in %s", t.name)
}

// insert adds a version after the one with a row id, and returns it with its name.
func (t *Tree) insert(
	tx *store.Tx, last int64, before, after snapshot, v Version,
) (Version, error) {
	names := changed(before, after)
	sum := sha256.New()
	// The name depends on the version before, so two equal changes have different names.
	for _, part := range []string{t.name, strconv.FormatInt(last, 10), v.Time.String(), v.Author,
		v.Reason, v.Change, strings.Join(names, "\x00")} {
		fmt.Fprintf(sum, "%d\x00%s", len(part), part)
	}
	v.ID = hex.EncodeToString(sum.Sum(nil)[:20])
	var id int64
	err := tx.QueryRow("INSERT INTO versions (tree, name, time_ms, author, reason, change) "+
		"VALUES ($1, $2, $3, $4, $5, $6) RETURNING id", t.name, v.ID, v.Time.UnixMilli(), v.Author,
		v.Reason, v.Change).Scan(&id)
	for i := 0; i < len(names) && err == nil; i++ {
		var text []byte // nil: the file was removed
		if now, there := after[names[i]]; there {
			// An empty file must not become nil, which stands for a removed one.
			text = append([]byte{}, now...)
		}
		_, err = tx.Exec("INSERT INTO version_files (tree, file, version, text) "+
			"VALUES ($1, $2, $3, $4)", t.name, []byte(names[i]), id, text)
	}
	return v, store.Wrap(err, "version: commit %s", t.name)
}
