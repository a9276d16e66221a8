package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxGroup bounds how many transactions share a commit, and so how long the first of them waits.
const maxGroup = 256

// errClosed reports a transaction on a closed database.
var errClosed = errors.New("store: closed")

// A writer runs transactions on the one connection that writes.
//
// There is no goroutine of its own: of the callers that wait, one leads. It runs
// the transactions of all in one commit and hands the lead to the first of those
// that came meanwhile. While a commit waits for the disk the next group gathers.
type writer struct {
	tx Tx // used by the leader only

	patience  time.Duration // how long a transaction waits for a database that can't be used
	hurry     chan struct{} // closed once the process ends
	hurryOnce sync.Once

	mu       sync.Mutex
	trouble  error     // why writes or reads wait; nil if they don't
	since    time.Time // since when
	troubled int       // how many of them wait
	told     func(error)
	led      bool // somebody leads
	closed   bool
	idle     sync.Cond // signalled when the last leader of a closed writer ends
	waiting  []*request
}

type request struct {
	fn    func(*Tx) error
	bare  bool // fn wants no transaction: it runs by itself
	err   error
	pan   any           // what fn panicked with
	after []func()      // that fn wants called after the commit
	wake  chan struct{} // closed when the request is done, sent to when it is to lead
	done  bool
}

func newWriter(db *sql.DB) *writer {
	w := &writer{tx: Tx{db: db, stmts: make(map[string]*sql.Stmt)}, hurry: make(chan struct{})}
	w.idle.L = &w.mu
	return w
}

// do runs fn with others and returns when it is committed.
func (w *writer) do(ctx context.Context, fn func(*Tx) error) error {
	return w.enqueue(ctx, &request{fn: fn})
}

// alone runs fn on the connection that writes, with no transaction and nobody beside it. Those who
// come meanwhile wait, however long it takes.
func (w *writer) alone(ctx context.Context, fn func(db *sql.DB) error) error {
	return w.enqueue(ctx, &request{bare: true, fn: func(tx *Tx) error { return fn(tx.db) }})
}

func (w *writer) enqueue(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errClosed
	}
	if w.led {
		r.wake = make(chan struct{}, 1)
		w.waiting = append(w.waiting, r)
		w.mu.Unlock()
		<-r.wake
		if !r.done {
			w.lead()
		}
	} else {
		w.led = true
		w.waiting = append(w.waiting, r)
		w.mu.Unlock()
		w.lead()
	}
	if r.pan != nil {
		panic(r.pan)
	}
	if r.err == nil {
		for _, fn := range r.after {
			fn()
		}
	}
	return r.err
}

// lead runs one group, in which the caller's request is the first, and passes the lead on.
func (w *writer) lead() {
	w.mu.Lock()
	n := min(len(w.waiting), maxGroup)
	if i := slices.IndexFunc(w.waiting[:n], func(r *request) bool { return r.bare }); i >= 0 {
		n = max(i, 1)
	}
	group := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	w.mu.Unlock()

	w.commit(group)

	w.pass()
	for _, r := range group[1:] {
		r.done = true
		close(r.wake)
	}
}

// pass gives the lead to the first of those who wait, before the others of a group learn that they
// are done: meanwhile the next one is under way.
func (w *writer) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 {
		w.waiting[0].wake <- struct{}{}
		return
	}
	w.waiting = nil
	w.led = false
	w.idle.Broadcast()
}

// commit runs the group in one transaction. If a request of it fails, the group runs once more with
// a savepoint for each request, so that one failure costs one commit and not one for each of 256.
// Savepoints are left out at first because failures are rare. If the transaction as a whole fails,
// each request gets one of its own.
func (w *writer) commit(group []*request) {
	if group[0].bare {
		group[0].err = w.run(group[0])
		return
	}
	err := w.persist(nil, func() error { return w.transact(group, w.run) })
	if len(group) == 1 || err == nil {
		group[0].err = err
		return
	}
	if !isTrouble(err) {
		err = w.persist(nil, func() error { return w.transact(group, w.runApart) })
		if err == nil {
			return
		}
	}
	waited := isTrouble(err) // for all of them
	for _, r := range group {
		try := func() error { return w.transact([]*request{r}, w.run) }
		if waited {
			r.err = try()
		} else {
			r.err = w.persist(nil, try)
		}
	}
}

// transact has run called with each request of the group, in one transaction, and returns the first
// error.
func (w *writer) transact(group []*request, run func(*request) error) error {
	if _, err := w.tx.Exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("store: begin: %w", err)
	}
	for _, r := range group {
		if err := run(r); err != nil {
			return errors.Join(err, w.rollback())
		}
	}
	if _, err := w.tx.Exec("COMMIT"); err != nil {
		return errors.Join(fmt.Errorf("store: commit: %w", err), w.rollback())
	}
	return nil
}

// rollback ends the transaction; nil is returned also where SQLite has ended it already.
func (w *writer) rollback() error {
	if _, err := w.tx.Exec("ROLLBACK"); err != nil && !isNoTransaction(err) {
		return fmt.Errorf("store: rollback: %w", err)
	}
	return nil
}

// runApart runs r in a savepoint. An error of r's own is kept in r, and what r has written is
// undone. It returns an error if the whole transaction is in trouble.
func (w *writer) runApart(r *request) error {
	if _, err := w.tx.Exec("SAVEPOINT apart"); err != nil {
		return fmt.Errorf("store: savepoint: %w", err)
	}
	if r.err = w.run(r); r.err != nil {
		if isTrouble(r.err) {
			return r.err
		}
		// SQLite ends the whole transaction after some errors: then there is no savepoint any more.
		if _, err := w.tx.Exec("ROLLBACK TO apart"); err != nil {
			return fmt.Errorf("store: undo: %w", errors.Join(r.err, err))
		}
	}
	if _, err := w.tx.Exec("RELEASE apart"); err != nil {
		return fmt.Errorf("store: release: %w", err)
	}
	return nil
}

// run calls r.fn. A panic is kept for r's own caller, since this goroutine may be another's.
func (w *writer) run(r *request) (err error) {
	r.pan, w.tx.after = nil, nil
	defer func() {
		r.after = w.tx.after
		if p := recover(); p != nil {
			r.pan = p
			err = fmt.Errorf("store: transaction panicked: %v", p)
		}
	}()
	return r.fn(&w.tx)
}

// close waits for the transactions under way and refuses later ones.
func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for w.led {
		w.idle.Wait()
	}
	return w.tx.close()
}
