package store

import (
	"database/sql"
	"errors"
	"strings"
)

// A Tx is a transaction under way. It is valid until the function that got it returns.
type Tx struct {
	// db has one connection, so that all its statements are in the transaction. They run
	// without a context: a transaction is not cancelled half way, and a context that
	// can end costs the driver a goroutine each time.
	db    *sql.DB
	stmts map[string]*sql.Stmt
	after []func() // of the function under way
	hard  bool     // a function of the group wants its commit to wait for the disk
}

// Hard makes the transaction wait for the disk, even if it was begun by [DB.TxSoon]. Functions call
// it that write what must not be lost in a power loss, or what others act on at once.
func (tx *Tx) Hard() { tx.hard = true }

// After has fn called once the transaction is committed, by the goroutine that has called [DB.Tx].
// It is not called if the transaction fails.
func (tx *Tx) After(fn func()) { tx.after = append(tx.after, fn) }

// Exec runs a statement and returns how many rows it changed.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
	stmt, err := tx.prepare(query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.Exec(args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query implements [Queryer]. The rows must be closed before the next call on tx.
func (tx *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	stmt, err := tx.prepare(query)
	if err != nil {
		return nil, err
	}
	return stmt.Query(args...)
}

// QueryRow implements [Queryer].
func (tx *Tx) QueryRow(query string, args ...any) *sql.Row {
	stmt, err := tx.prepare(query)
	if err != nil { // the same error comes again, where Scan can report it
		return tx.db.QueryRow(query, args...)
	}
	return stmt.QueryRow(args...)
}

// prepare keeps each statement, so that its text must be one of few: values go into args.
func (tx *Tx) prepare(query string) (*sql.Stmt, error) {
	if stmt, ok := tx.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := tx.db.Prepare(query)
	if err != nil {
		return nil, err
	}
	tx.stmts[query] = stmt
	return stmt, nil
}

// script runs several statements at once, for migrations.
func (tx *Tx) script(sql string) error {
	_, err := tx.db.Exec(sql)
	return err
}

func (tx *Tx) close() error {
	var errs []error
	for _, stmt := range tx.stmts {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, tx.db.Close())...)
}

func isNoTransaction(err error) bool {
	return strings.Contains(err.Error(), "no transaction is active")
}
