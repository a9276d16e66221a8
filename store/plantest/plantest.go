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

// Explain explains a query, which may be a write, without running it.
func (p *Plans) Explain(query string, args ...any) {
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
	p.Explain(query, args...)
	return p.Queryer.Query(query, args...)
}

// QueryRow implements [store.Queryer].
func (p *Plans) QueryRow(query string, args ...any) *sql.Row {
	p.Explain(query, args...)
	return p.Queryer.QueryRow(query, args...)
}

// WantNoScan reports an error for each query that reads a whole table or a whole index.
func (p *Plans) WantNoScan() {
	p.T.Helper()
	if len(p.Seen) == 0 {
		p.T.Error("no query was explained")
	}
	for _, plan := range p.Seen {
		if strings.Contains(plan, "SCAN") {
			p.T.Errorf("the plan is %q, want one that searches", plan)
		}
	}
}
