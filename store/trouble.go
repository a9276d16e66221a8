package store

import (
	"errors"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// How long a transaction waits for a database that can't be written: then whoever wants the write
// gets the error. The second one holds once the process ends. A process that looks at the database
// of another one does not wait.
const (
	maxPatience  = time.Hour
	lastPatience = 5 * time.Second
	firstRetry   = 50 * time.Millisecond
	lastRetry    = time.Second
)

// isTrouble reports whether err says that the database can't be written at present: the disk is
// full or fails, or somebody else holds the lock. That is no fault of the transaction, and a person
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

// persist calls try until the database can be written, patience ends, or try fails for a reason of
// its own.
func (w *writer) persist(try func() error) error {
	began, wait, limit, hurry := time.Now(), firstRetry, w.patience, w.hurry
	defer w.setTrouble(nil)
	for {
		err := try()
		if err == nil || !isTrouble(err) {
			return err
		}
		since := time.Since(began)
		if since >= limit {
			return err
		}
		w.setTrouble(err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-hurry:
			limit, hurry = since+lastPatience, nil
		}
		timer.Stop()
		wait = min(2*wait, lastRetry)
	}
}

// setTrouble notes why writes wait, and tells who wants to know of a change.
func (w *writer) setTrouble(err error) {
	w.mu.Lock()
	changed := (err == nil) != (w.trouble == nil)
	if w.trouble = err; changed && err != nil {
		w.since = time.Now()
	}
	told := w.told
	w.mu.Unlock()
	if changed && told != nil {
		told(err)
	}
}

// Trouble returns since when writes wait, and why; nil if they don't. They wait as long as the disk
// is full or fails, or somebody else holds the lock: nothing is lost, but nothing goes on.
func (db *DB) Trouble() (since time.Time, err error) {
	w := db.write
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since, w.trouble
}

// OnTrouble has fn called when writes begin to wait, with the reason, and with nil when they go on.
// It is called before the database is used by others.
func (db *DB) OnTrouble(fn func(error)) {
	db.write.mu.Lock()
	defer db.write.mu.Unlock()
	db.write.told = fn
}

// Hurry has writes that wait give up after some seconds, because the process ends.
func (db *DB) Hurry() { db.write.hurryOnce.Do(func() { close(db.write.hurry) }) }
