package store

import (
	"database/sql"
	"errors"
	"strings"
)

// A Tx is a transaction. It is valid until the function that received it returns.
type Tx struct {
	// db has a single connection, so all its statements belong to the transaction. They run without
	// a context: a transaction is not cancelled half way, and a cancellable context costs the
	// driver a goroutine per statement.
	db    *sql.DB
	stmts map[string]*sql.Stmt
	after []func() // of the current function
	hard  bool     // a function of the group called WaitForDisk
	early bool     // the current function belongs to TxEarly
}

// WaitForDisk makes the transaction wait for the disk, even if [DB.TxSoon] began it. Call it for
// writes that must survive a power loss, or on which other programs act immediately.
func (tx *Tx) WaitForDisk() { tx.hard = true }

// WaitForDiskAtReturn makes the transaction wait for the disk before its caller continues. Call it
// for writes that must survive a power loss once the caller has acknowledged them. Unlike after
// [Tx.WaitForDisk], others may see the writes earlier: see [DB.TxEarly].
func (tx *Tx) WaitForDiskAtReturn() {
	if !tx.early {
		tx.hard = true
	}
}

// After registers fn to be called once the transaction is committed, before its caller continues.
// The functions of all transactions are called one after the other, in the order of the commits.
// Writers wait meanwhile, so fn must be short and must not use the database. It is not called if
// the transaction fails.
func (tx *Tx) After(fn func()) { tx.after = append(tx.after, fn) }

// Exec executes a statement and returns the number of rows that it changed.
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
	if err != nil { // running it gives the same error, which Scan reports
		return tx.db.QueryRow(query, args...)
	}
	return stmt.QueryRow(args...)
}

// prepare caches the prepared statement for query. Therefore values must be in args, not in the
// text.
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

// script executes several statements, for migrations.
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
