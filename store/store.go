// Package store is the gateway's database. It opens and migrates the database, groups the writes of
// many goroutines into one durable commit, and manages leases with fencing epochs.
//
// The main type is [DB]. It uses SQLite in WAL mode. When [DB.Tx] has returned nil, the write
// survives a kill and a power loss. After [DB.TxSoon] it survives a kill, and some milliseconds
// later also a power loss. [DB.TxEarly] shows a write to others before it is on the disk. While the
// disk is full or another program locks the file, writes and reads wait (see [DB.Trouble]). One
// process owns a database at a time: a lock file refuses a second one. Command line tools can open
// the database without the lock for short reads and writes (see [Options]).
//
// Most SQL of the gateway uses the subset that SQLite and PostgreSQL share: $1 placeholders, ON
// CONFLICT, RETURNING. Full-text search and some migrations are specific to SQLite. Times are Unix
// milliseconds.
//
// Tables: schema, leases, lives.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"modernc.org/sqlite" // registers the driver "sqlite", too
)

// ErrLocked reports that another process owns the database.
var ErrLocked = errors.New("another process uses this file")

// Options are the optional settings of [Open].
type Options struct {
	// Shared opens the database beside the process that owns it, for a short read or write. Open
	// then neither takes the lock nor migrates.
	Shared bool
}

// A DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	path   string
	unlock func() error
	write  *writer
	read   *sql.DB
	closed atomic.Bool

	onLongRead func(held int64) // nil: nobody is told

	shredding chan struct{} // held during Shred
	rewritten atomic.Bool   // Shred has made the database incremental

	mu    sync.Mutex
	stmts map[string]*sql.Stmt // prepared for reads
}

// Open opens the SQLite database at path, or creates it, takes the lock and applies migrations. It
// reports [ErrLocked] if another process has the database open, and [ErrNewer] if migrations are
// too old for it or lack one of its packages. With nil it opens a database of any version.
func Open(ctx context.Context, path string, migrations []Migration, opts *Options) (*DB, error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	db := &DB{path: path, unlock: func() error { return nil },
		stmts: make(map[string]*sql.Stmt), shredding: make(chan struct{}, 1)}
	if o.Shared {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("store: open %s: %w", path, err)
		}
	} else {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("store: open %s: %w", path, err)
		}
		unlock, err := LockWithin(ctx, path+".lock", lockPatience)
		if err != nil {
			return nil, fmt.Errorf("store: open %s: %w", path, err)
		}
		db.unlock = unlock
		if err := create(ctx, path); err != nil {
			return nil, errors.Join(fmt.Errorf("store: open %s: %w", path, err), unlock())
		}
	}
	if err := db.connect(ctx, o.Shared); err != nil {
		return nil, errors.Join(fmt.Errorf("store: open %s: %w", path, err), db.Close())
	}
	var err error
	if o.Shared {
		err = checkSchema(ctx, db, migrations)
	} else {
		err = migrate(ctx, db, migrations)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store: open %s: %w", path, err), db.Close())
	}
	return db, nil
}

// lockPatience and lockRetry say how long and how often Open tries to get the lock. The lock of a
// killed process can remain for a moment, on a busy machine for seconds: a child that it was
// starting may still have inherited the file.
const (
	lockPatience = 5 * time.Second
	lockRetry    = 20 * time.Millisecond
)

// LockWithin is like [Lock] but retries for patience. A child that this process is starting may
// hold the files of the lock for a moment.
func LockWithin(
	ctx context.Context, path string, patience time.Duration,
) (unlock func() error, err error) {
	for began := time.Now(); ; {
		unlock, err = Lock(path)
		if !errors.Is(err, ErrLocked) || time.Since(began) > patience {
			return unlock, err
		}
		timer := time.NewTimer(lockRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// pageSize is the page size of a new database in bytes. A commit writes every changed page as a
// whole, mostly for a single row: a message writes 33 KB to the disk, 60 KB with pages of 2048, and
// 110 KB with SQLite's default of 4096. Compared with 2048, a database of many short rows is up to
// two fifths larger, and a search takes a tenth longer.
const pageSize = 1024

// create creates the database file if it is missing, readable only by its owner. The files that
// SQLite creates beside it get the same mode.
func create(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil || info.Size() > 0 {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	// Both must be set before the first page is written. The pragmas of the driver's DSN come too
	// late.
	for _, pragma := range []string{
		fmt.Sprint("page_size=", pageSize), "auto_vacuum=INCREMENTAL", "journal_mode=WAL",
	} {
		if _, err := db.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) connect(ctx context.Context, shared bool) error {
	// A commit need not wait for the time of the file's last change. An error says that the system
	// has no such call; then SQLite uses fsync.
	_, _ = sqlite.Fdatasync(true)
	// Run moves the write-ahead log into the database beside the writers. A commit does it only
	// once the log has 32,000 pages. After that the file is cut to 16 MB.
	w, err := sql.Open("sqlite", dsn(db.path, "journal_mode(WAL)",
		"synchronous(FULL)", "busy_timeout(10000)", "foreign_keys(1)", "cache_size(-4096)",
		"wal_autocheckpoint(32000)", "journal_size_limit(16777216)",
		"secure_delete(1)")) // don't leave deleted data in free pages
	if err != nil {
		return err
	}
	w.SetMaxOpenConns(1)
	db.write = newWriter(w, db.path)
	db.read, err = sql.Open("sqlite", dsn(db.path, "query_only(1)",
		"busy_timeout(10000)", "cache_size(-1024)"))
	if err != nil {
		return err
	}
	db.read.SetMaxOpenConns(4)
	db.read.SetMaxIdleConns(4)
	if shared { // each connection is opened when it is first needed: many callers only read
		return nil
	}
	db.write.patience = maxPatience
	var both errgroup.Group // each reads the schema, which takes some milliseconds
	both.Go(func() error { return w.PingContext(ctx) })
	both.Go(func() error { return db.read.PingContext(ctx) })
	return both.Wait()
}

func dsn(path string, pragmas ...string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	u.RawQuery = url.Values{"_pragma": pragmas}.Encode()
	return u.String()
}

// Close waits for the transactions under way, closes the database and releases the lock. Further
// calls do nothing.
func (db *DB) Close() error {
	if db.closed.Swap(true) {
		return nil
	}
	var errs []error
	if db.read != nil {
		errs = append(errs, db.read.Close())
	}
	if db.write != nil {
		errs = append(errs, db.write.close())
	}
	return errors.Join(append(errs, db.unlock())...)
}

// Tx runs fn in a transaction and returns once its writes are on the disk. If fn returns an error,
// Tx writes nothing and returns that error.
//
// Concurrent calls share one commit. Therefore fn may run more than once and on another goroutine:
// it must set the variables that it captures anew each time, and must do nothing but database work.
//
// If ctx is done, Tx does not begin the transaction. Once begun, the transaction is finished.
func (db *DB) Tx(ctx context.Context, fn func(*Tx) error) error {
	return db.write.do(ctx, &request{fn: fn})
}

// TxSoon is like [DB.Tx] but returns before its writes are on the disk. Use it for writes that only
// a kill must not lose, and that may be lost in a power loss because they can be repeated.
//
// The commit survives a kill immediately. It survives a power loss after the next commit that waits
// for the disk, or after 50 ms: commits reach the disk in order. A transaction that calls
// [Tx.WaitForDisk] waits for the disk.
func (db *DB) TxSoon(ctx context.Context, fn func(*Tx) error) error {
	return db.write.do(ctx, &request{fn: fn, soft: true})
}

// txAtStart is like [DB.Tx], or [DB.TxSoon] if soft is set, for the first writes of a process. They
// don't wait for an unusable database, so that the start fails and says why.
func (db *DB) txAtStart(ctx context.Context, soft bool, fn func(*Tx) error) error {
	return db.write.do(ctx, &request{fn: fn, soft: soft, atStart: true})
}

// TxEarly is like [DB.Tx] but calls visible as soon as the writes are committed, while they are on
// their way to the disk. Use it for writes that are acknowledged to others only after TxEarly has
// returned. What others write because they have seen these writes reaches the disk after them.
//
// If TxEarly returns an error after it called visible, the writes may be lost in a power loss.
func (db *DB) TxEarly(ctx context.Context, fn func(*Tx) error, visible func()) error {
	if err := db.write.do(ctx, &request{fn: fn, soft: true, early: true}); err != nil {
		return err
	}
	visible()
	// The wait for the disk is a system call. A goroutine that visible has woken would not run before
	// another thread has been woken for it, which takes longer than the rest of its work.
	runtime.Gosched()
	return Wrap(db.write.log.wait(), "store: sync")
}

// A Queryer runs queries. Queries on a [Tx] see its own writes; queries on [DB.Read] see the last
// committed state.
type Queryer interface {
	Query(query string, args ...any) (*sql.Rows, error)
	QueryRow(query string, args ...any) *sql.Row
}

// Read returns a Queryer that reads without blocking the writers. Each query sees what was
// committed when it began. While the database is unusable, a query waits like a transaction, until
// ctx is done.
func (db *DB) Read(ctx context.Context) Queryer { return reader{ctx, db} }

type reader struct {
	ctx context.Context // of this call
	db  *DB
}

func (r reader) Query(query string, args ...any) (rows *sql.Rows, err error) {
	err = r.db.write.persist(r.ctx.Done(), func() error {
		stmt, err := r.db.prepare(r.ctx, query)
		if err != nil {
			return err
		}
		rows, err = stmt.QueryContext(r.ctx, args...)
		return err
	})
	return rows, err
}

func (r reader) QueryRow(query string, args ...any) (row *sql.Row) {
	_ = r.db.write.persist(r.ctx.Done(), func() error { // Scan reports the error
		stmt, err := r.db.prepare(r.ctx, query)
		if err != nil { // the query below returns the same error
			row = r.db.read.QueryRowContext(r.ctx, query, args...)
		} else {
			row = stmt.QueryRowContext(r.ctx, args...)
		}
		return row.Err()
	})
	return row
}

func (db *DB) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	db.mu.Lock()
	stmt, ok := db.stmts[query]
	db.mu.Unlock()
	if ok {
		return stmt, nil
	}
	stmt, err := db.read.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if other, ok := db.stmts[query]; ok { // another goroutine prepared it meanwhile
		return other, stmt.Close()
	}
	db.stmts[query] = stmt
	return stmt, nil
}
