package store

import (
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// How long a transaction or a read waits for a database that can't be used: then its caller gets
// the error. The second one holds once the process ends. A process that looks at the database
// of another one does not wait.
const (
	maxPatience  = time.Hour
	lastPatience = 5 * time.Second
	firstRetry   = 50 * time.Millisecond
	lastRetry    = time.Second
)

// isTrouble reports whether err says that the database can't be used at present: the disk is
// full or fails, or somebody else holds the lock. That is no fault of the statement, and a person
// can end it.
func isTrouble(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff { // the rest says more about it
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_FULL, lib.SQLITE_IOERR,
		lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// IsLost reports whether err says that the store itself is lost: it can't be read or written for
// longer than anybody waits, is damaged, closed, or belongs to another process by now. Any other
// error is the affair of who has asked: of one transaction, one row.
func IsLost(err error) bool {
	if errors.Is(err, errClosed) || errors.Is(err, ErrFenced) || isTrouble(err) {
		return true
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	// SQLITE_CORRUPT_VTAB, for one, is only the index of the memory, which can be made anew.
	return e.Code() == lib.SQLITE_CORRUPT || e.Code()&0xff == lib.SQLITE_NOTADB
}

// A RowError reports a row that can't be understood. Who reads a list of rows gets the others with
// it.
type RowError struct {
	Table string
	ID    int64
	Err   error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("row %d of %s can't be read: %v", e.ID, e.Table, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// RowErrors returns the rows that could not be read, if err says of nothing else.
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

// persist calls try until the database can be used, patience or done ends, or try fails for a
// reason of its own.
func (w *writer) persist(done <-chan struct{}, try func() error) error {
	err := try()
	if !isTrouble(err) || w.patience == 0 {
		return err
	}
	began, wait, limit, hurry := time.Now(), firstRetry, w.patience, w.hurry
	w.enterTrouble(err)
	defer w.leaveTrouble()
	for {
		since := time.Since(began)
		if since >= limit {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-hurry:
			limit, hurry = since+lastPatience, nil
		case <-done:
			timer.Stop()
			return err
		}
		timer.Stop()
		wait = min(2*wait, lastRetry)
		if err = try(); !isTrouble(err) {
			return err
		}
	}
}

// enterTrouble notes that somebody waits because of err. The first to wait tells of it.
func (w *writer) enterTrouble(err error) {
	w.mu.Lock()
	w.troubled++
	first, told := w.troubled == 1, w.told
	if first {
		w.trouble, w.since = err, time.Now()
	}
	w.mu.Unlock()
	if first && told != nil {
		told(err)
	}
}

// leaveTrouble notes that somebody waits no longer. The last to go on tells of it.
func (w *writer) leaveTrouble() {
	w.mu.Lock()
	w.troubled--
	last, told := w.troubled == 0, w.told
	if last {
		w.trouble = nil
	}
	w.mu.Unlock()
	if last && told != nil {
		told(nil)
	}
}

// Trouble returns since when writes or reads wait, and why; nil if they don't. They wait as long as
// the disk is full or fails, or somebody else holds the lock: nothing is lost, but nothing goes on.
func (db *DB) Trouble() (since time.Time, err error) {
	w := db.write
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, w.trouble
}

// OnTrouble has fn called when writes or reads begin to wait, with the reason, and with nil when
// they go on.
// It is called before the database is used by others.
func (db *DB) OnTrouble(fn func(error)) {
	db.write.mu.Lock()
	defer db.write.mu.Unlock()
	db.write.told = fn
}

// Hurry has writes and reads that wait give up after some seconds, because the process ends.
func (db *DB) Hurry() { db.write.hurryOnce.Do(func() { close(db.write.hurry) }) }
