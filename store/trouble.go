package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// How long a transaction or a query waits for an unusable database before it returns the error:
// normally, and once the process is stopping. A process that only reads the database of another one
// does not wait.
const (
	maxPatience  = time.Hour
	lastPatience = 5 * time.Second
	firstRetry   = 50 * time.Millisecond
	lastRetry    = time.Second
)

// IsUnusable reports whether err says that the database is temporarily unusable: the disk is full
// or fails, or another program holds the lock. The statement is not at fault, and a person can
// solve the problem.
func IsUnusable(err error) bool {
	if errors.Is(err, errReader) {
		return true
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff { // the other bits hold details
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_FULL, lib.SQLITE_IOERR,
		lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// IsFull reports whether err says that a disk is full.
func IsFull(err error) bool {
	if errors.Is(err, syscall.ENOSPC) {
		return true
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	// SQLite returns SQLITE_IOERR_SHMSIZE if the index of the write-ahead log finds no space.
	return ok && (e.Code()&0xff == lib.SQLITE_FULL || e.Code() == lib.SQLITE_IOERR_SHMSIZE)
}

// IsDenied reports whether err says that this user may not open or write the database, or that its
// disk is mounted read-only.
func IsDenied(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == lib.SQLITE_READONLY || e.Code()&0xff == lib.SQLITE_CANTOPEN)
}

// IsBusy reports whether err says that another program has locked the database.
func IsBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == lib.SQLITE_BUSY
}

// isFailedSync reports whether err says that a file could not be synced.
func isFailedSync(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == lib.SQLITE_IOERR_FSYNC
}

// IsLost reports whether err says that the store itself is lost: it was unusable for longer than
// callers wait, is damaged or closed, or belongs to another process now. Any other error concerns
// only the caller: one transaction, one row.
func IsLost(err error) bool {
	if errors.Is(err, errClosed) || errors.Is(err, ErrFenced) {
		return true
	}
	if IsUnusable(err) {
		return !errors.Is(err, errReader) // which only delays a repair
	}
	return IsDamaged(err)
}

// IsDamaged reports whether err says that the file of the database is damaged.
func IsDamaged(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	// SQLITE_CORRUPT_VTAB, for example, concerns only the search index, which can be rebuilt.
	return ok && (e.Code() == lib.SQLITE_CORRUPT || e.Code()&0xff == lib.SQLITE_NOTADB)
}

// LogUnlessLost logs an error and returns nil, unless the error says that the store is lost: then
// it returns the error.
func LogUnlessLost(ctx context.Context, log *slog.Logger, what string, err error) error {
	if err == nil || IsLost(err) {
		return err
	}
	log.ErrorContext(ctx, what, "err", err)
	return nil
}

// A RowError reports a row that can't be decoded. Functions that read many rows return it together
// with the other rows.
type RowError struct {
	Table string
	ID    int64
	Err   error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("row %d of %s can't be read: %v", e.ID, e.Table, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// RowErrors returns the [RowError]s in err. It returns false if err reports anything else.
func RowErrors(err error) (list []*RowError, ok bool) {
	switch e := err.(type) {
	case *RowError:
		return []*RowError{e}, true
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			rows, ok := RowErrors(one)
			if !ok {
				return nil, false
			}
			list = append(list, rows...)
		}
		return list, true
	}
	return nil, err == nil
}

// persist calls try until it succeeds or fails for a reason other than an unusable database. It
// gives up after the patience of w, or when done is closed.
func (w *writer) persist(done <-chan struct{}, try func() error) error {
	err := try()
	if !IsUnusable(err) || w.patience == 0 {
		return err
	}
	began, wait, limit, hurry := time.Now(), firstRetry, w.patience, w.hurry
	w.enterTrouble(err)
	defer func() { w.leaveTrouble(!IsUnusable(err)) }()
	for {
		since := time.Since(began)
		if since >= limit {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-hurry:
			limit, hurry = since+max(0, lastPatience-time.Since(w.hurried)), nil
		case <-done:
			timer.Stop()
			return err
		}
		timer.Stop()
		wait = min(2*wait, lastRetry)
		if err = try(); !IsUnusable(err) {
			return err
		}
	}
}

// enterTrouble records that one more caller waits because of err. The first one reports it.
func (w *writer) enterTrouble(err error) {
	w.mu.Lock()
	w.troubled++
	first, told := w.troubled == 1, w.onTrouble
	if first {
		w.trouble, w.since = err, time.Now()
	}
	w.mu.Unlock()
	if first && told != nil {
		told(err)
	}
}

// leaveTrouble records that one caller no longer waits. The last one reports it, unless that caller
// has given up.
func (w *writer) leaveTrouble(ended bool) {
	w.mu.Lock()
	w.troubled--
	last, told := w.troubled == 0, w.onTrouble
	if last {
		w.trouble = nil
	}
	w.mu.Unlock()
	if last && ended && told != nil {
		told(nil)
	}
}

// Trouble returns since when writes or reads have been waiting, and why; the error is nil if none
// waits. They wait while the disk is full or fails, or while another program holds the lock.
// Nothing is lost meanwhile.
func (db *DB) Trouble() (since time.Time, err error) {
	w := db.write
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, w.trouble
}

// OnTrouble sets the function that is called with the reason when writes or reads begin to wait,
// and with nil when they continue. It must be called before the database is used.
func (db *DB) OnTrouble(fn func(error)) {
	db.write.mu.Lock()
	defer db.write.mu.Unlock()
	db.write.onTrouble = fn
}

// ShortenWaits makes waiting writes and reads give up after some seconds. Later ones wait for the
// rest of these seconds only, so that a process that writes in several steps ends in time. Call it
// when the process stops.
func (db *DB) ShortenWaits() {
	w := db.write
	w.hurryOnce.Do(func() {
		w.hurried = time.Now()
		close(w.hurry)
	})
}
