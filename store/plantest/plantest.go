// Package plantest shows tests how SQLite runs their queries.
package plantest

import (
	"database/sql"
	"strings"
	"testing"

	"gateway/store"
)

// Plans explains each query before it runs it.
type Plans struct {
	store.Queryer
	T    testing.TB
	Seen []string // how SQLite runs each query: the steps, separated by "; "
}

func (p *Plans) explain(query string, args []any) {
	p.T.Helper()
	steps, err := store.Collect(p.Queryer, "explain", func(scan store.Scan, step *string) error {
		var id, parent, unused int
		return scan(&id, &parent, &unused, step)
	}, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		p.T.Fatal(err)
	}
	p.Seen = append(p.Seen, strings.Join(steps, "; "))
}

// Query implements [store.Queryer].
func (p *Plans) Query(query string, args ...any) (*sql.Rows, error) {
	p.explain(query, args)
	return p.Queryer.Query(query, args...)
}

// QueryRow implements [store.Queryer].
func (p *Plans) QueryRow(query string, args ...any) *sql.Row {
	p.explain(query, args)
	return p.Queryer.QueryRow(query, args...)
}
