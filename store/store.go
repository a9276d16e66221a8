// Package store is the gateway's database: it opens and migrates it, groups
// the writes of many goroutines into one durable commit, and keeps leases with
// fencing epochs.
//
// The main type is [DB]. It stands on SQLite in WAL mode: when [DB.Tx] has returned nil, the write
// survives a kill and a power loss. After [DB.TxSoon] it survives a kill, and a power loss some
// milliseconds later. While the disk is full or
// somebody else locks the file, writes and reads wait (see [DB.Trouble]). One process owns
// a database at a time; a lock beside the file refuses a second one. Short writes
// of the command line tools go around that lock (see [Options]).
//
// Most SQL of the gateway is written in the subset that SQLite and PostgreSQL
// share: $1 placeholders, ON CONFLICT, RETURNING. Full-text search and some
// migrations are SQLite's own. Times are Unix milliseconds.
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
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// ErrLocked reports that another process owns the database.
var ErrLocked = errors.New("another process uses this file")

// Options are the optional settings of [Open].
type Options struct {
	// Shared opens the database beside the process that owns it, for a short look or
	// change. It neither takes the lock nor migrates.
	Shared bool
}

// A DB is an open database. Its methods may be called concurrently.
type DB struct {
	path   string
	unlock func() error
	write  *writer
	read   *sql.DB
	closed atomic.Bool

	shredding chan struct{} // held by who shreds

	mu    sync.Mutex
	stmts map[string]*sql.Stmt // prepared on read
}

// Open opens the SQLite database at path, creates it if it is missing, takes
// the lock and applies migrations. It reports [ErrLocked] if another process has it.
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
		unlock, err := LockSoon(ctx, path+".lock", lockPatience)
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
		err = errors.Join(migrate(ctx, db, migrations), db.Tx(ctx, expireLeases))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store: open %s: %w", path, err), db.Close())
	}
	return db, nil
}

// How long Open waits for the lock. A process that was killed is gone at once, but for a moment, on
// a busy machine for seconds, a program that it was about to start can still have its files.
const (
	lockPatience = 5 * time.Second
	lockRetry    = 20 * time.Millisecond
)

// LockSoon is [Lock], but waits for a lock that is given back within patience: a program that this
// process is about to start has its files for a moment.
func LockSoon(
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

// pageSize is how many bytes a page of a new database has. A commit writes each page that it
// changes as a whole, and most of them for one row: SQLite's own 4096 make that twice as much. With
// 1024 the database is a fifth larger, and a search in it takes a fifth longer.
const pageSize = 2048

// create makes the file of the database, if it is missing, one that its owner alone reads. What
// SQLite makes beside it gets the same mode.
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
	// Both can only be set before the first page is written, and the driver would do that too soon.
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
	// The write-ahead log is moved into the database by Run, beside the writers; a
	// commit does it itself only if the log has 32,000 pages. After that the file is cut to 16 MB.
	//
	// auto_vacuum comes first: a database gets it before its first page, or with the next Shred.
	w, err := sql.Open("sqlite", dsn(db.path, "auto_vacuum(2)", "journal_mode(WAL)",
		"synchronous(FULL)", "busy_timeout(10000)", "foreign_keys(1)", "cache_size(-4096)",
		"wal_autocheckpoint(32000)", "journal_size_limit(16777216)",
		"secure_delete(1)")) // what was deleted is not left in free pages
	if err != nil {
		return err
	}
	w.SetMaxOpenConns(1)
	db.write = newWriter(w, db.path)
	if !shared {
		db.write.patience = maxPatience
	}
	if err := w.PingContext(ctx); err != nil {
		return err
	}
	db.read, err = sql.Open("sqlite", dsn(db.path, "query_only(1)",
		"busy_timeout(10000)", "cache_size(-1024)"))
	if err != nil {
		return err
	}
	db.read.SetMaxOpenConns(4)
	db.read.SetMaxIdleConns(4)
	return nil
}

func dsn(path string, pragmas ...string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()}
	u.RawQuery = url.Values{"_pragma": pragmas}.Encode()
	return u.String()
}

// Close ends the database after the transactions under way, and gives the lock back.
// Closing it again does nothing.
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

// Tx runs fn in a transaction and returns once its writes are on the disk. If
// fn returns an error, nothing of it is written and Tx returns that error.
//
// Calls that wait at the same time share one commit. For that fn may be run
// more than once and on another goroutine: it sets what it captures
// anew each time, and does nothing but database work.
//
// A ctx that has ended keeps a transaction from beginning, not from ending.
func (db *DB) Tx(ctx context.Context, fn func(*Tx) error) error {
	return db.write.do(ctx, false, fn)
}

// TxSoon is like [DB.Tx] but returns before its writes are on the disk. It suits what is written
// only for the case that the process is killed, and what may happen again after a power loss.
//
// The commit survives a kill at once. It survives a power loss from the next commit that waits for
// the disk, or after 50 ms: commits reach the disk in their order. A transaction that calls
// [Tx.Hard] waits for the disk all the same.
func (db *DB) TxSoon(ctx context.Context, fn func(*Tx) error) error {
	return db.write.do(ctx, true, fn)
}

// A Queryer reads: a [Tx] sees its own writes, [DB.Read] what was last committed.
type Queryer interface {
	Query(query string, args ...any) (*sql.Rows, error)
	QueryRow(query string, args ...any) *sql.Row
}

// Read returns a Queryer beside the writers. Each query sees what was committed when it began.
// While the database can't be used, a query waits like a transaction does, until ctx ends.
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
		if err != nil { // the same error comes again
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
	if other, ok := db.stmts[query]; ok { // prepared by another goroutine meanwhile
		return other, stmt.Close()
	}
	db.stmts[query] = stmt
	return stmt, nil
}

// Shred sees to it that nothing of what was deleted is left in the files, in small steps, beside
// those who write. Only for the last of the write-ahead log, some milliseconds, writes wait. A
// database that was made before small steps were possible is rewritten once, while all wait. An
// error may mean that somebody reads for long: then it is to be tried again.
func (db *DB) Shred(ctx context.Context) error {
	if err := db.shred(ctx); err != nil {
		return fmt.Errorf("store: shred: %w", err)
	}
	return nil
}

// truncateTries is how often the write-ahead log is tried to be emptied, for a second each.
const truncateTries = 2

func (db *DB) shred(ctx context.Context) error {
	select { // one at a time: each reads what the other wants to empty
	case db.shredding <- struct{}{}:
		defer func() { <-db.shredding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var mode int
	if err := db.Read(ctx).QueryRow("PRAGMA auto_vacuum").Scan(&mode); err != nil {
		return err
	}
	if mode != incremental {
		return db.write.alone(ctx, func(w *sql.DB) error {
			if _, err := w.ExecContext(ctx, "VACUUM"); err != nil {
				return err
			}
			return db.checkpoint(ctx, "TRUNCATE")
		})
	}
	for more := true; more; {
		var err error
		if more, err = db.Shrink(ctx); err != nil {
			return err
		}
	}
	if err := db.scrub(ctx); err != nil {
		return err
	}
	// Beside the writers at first, so that little is left to do while they wait.
	if err := db.checkpoint(ctx, "PASSIVE"); err != nil {
		return err
	}
	return db.write.alone(ctx, func(*sql.DB) (err error) {
		for range truncateTries { // another checkpoint beside it, of Run, is over soon
			if err = db.checkpoint(ctx, "TRUNCATE"); err == nil {
				break
			}
		}
		return err
	})
}

// checkpoint moves the write-ahead log into the database: as much as goes at once (PASSIVE), or all
// of it (TRUNCATE), for which nobody may write.
func (db *DB) checkpoint(ctx context.Context, mode string) error {
	pool, err := sql.Open("sqlite", dsn(db.path, "busy_timeout(1000)"))
	if err != nil {
		return err
	}
	defer pool.Close()
	var busy, frames, moved int
	err = pool.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &frames, &moved)
	if err == nil && busy != 0 && mode == "TRUNCATE" {
		err = errors.New("the write-ahead log is still read")
	}
	return err
}

// checkpointSize is the size of the write-ahead log, in bytes, from which Run empties it.
const checkpointSize = 4 << 20

// Run keeps the write-ahead log short until ctx ends, beside the writers and
// without holding them up.
func (db *DB) Run(ctx context.Context) error {
	pool, err := sql.Open("sqlite", dsn(db.path, "busy_timeout(0)"))
	if err != nil {
		return fmt.Errorf("store: checkpoint: %w", err)
	}
	pool.SetMaxOpenConns(1)
	defer pool.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if st, err := os.Stat(db.path + "-wal"); err != nil || st.Size() < checkpointSize {
			continue
		}
		_, err := pool.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
		if err != nil && !isTrouble(err) && ctx.Err() == nil {
			return fmt.Errorf("store: checkpoint: %w", err)
		}
	}
}
