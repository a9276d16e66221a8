package app

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gateway/store"
	"gateway/store/storetest"
)

// A new database has the same tables, with the same number of rows, as a database that went
// through all steps of the migrations.
func TestNewDatabaseEqualsMigratedOne(t *testing.T) {
	migrations := Migrations()
	created := objects(t, migrations)
	faster := 0
	for i := range migrations {
		m := &migrations[i]
		if m.Version > 0 {
			faster++
		}
		if m.Version > 0 && m.Version != len(m.Steps) {
			t.Errorf("%s: the tables are those of version %d, want %d", m.Package, m.Version, len(m.Steps))
		}
		m.Version = 0
	}
	migrated := objects(t, migrations)
	if faster == 0 || len(migrated) < 100 {
		t.Fatalf("%d packages with a script for new databases, %d objects", faster, len(migrated))
	}
	for _, o := range migrated {
		if !slices.Contains(created, o) {
			t.Errorf("a new database lacks %s", o)
		}
	}
	for _, o := range created {
		if !slices.Contains(migrated, o) {
			t.Errorf("only a new database has %s", o)
		}
	}
}

// objects returns one line for each table, column and index of a new database. Comments and
// spaces in its SQL and the order in which tables were created make no difference.
func objects(t *testing.T, migrations []store.Migration) (list []string) {
	db, err := store.Open(t.Context(), filepath.Join(storetest.Dir(t), "g.db"), migrations, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query := func(query string, args ...any) []string {
		lines, err := store.Collect(db.Read(t.Context()), "schema",
			func(scan store.Scan, line *string) error { return scan(line) }, query, args...)
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	for _, table := range query("SELECT name FROM sqlite_schema WHERE type = 'table' " +
		"AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite%'") {
		list = append(list, table+" rows: "+query("SELECT count(*) FROM \"" + table + "\"")[0])
	}
	list = append(list, query(`SELECT concat_ws(' ', t.name, c.cid, c.name, c.type, c."notnull",
		c.dflt_value, c.pk, t.sql LIKE '%AUTOINCREMENT%')
		FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'`)...)
	for _, sql := range query(`SELECT concat_ws(' ', i.name, i.tbl_name, i.sql,
		(SELECT group_concat(c.name) FROM pragma_index_info(i.name) c))
		FROM sqlite_schema i WHERE i.type <> 'table'`) {
		list = append(list, strings.Join(strings.Fields(sql), " "))
	}
	return list
}
