package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxGroup is the maximum number of transactions that share a commit. It bounds how long the first
// one waits.
const maxGroup = 256

// errClosed reports a transaction on a closed database.
var errClosed = errors.New("store: closed")

// A writer runs transactions on the single connection that writes.
//
// It has no goroutine of its own: one of the waiting callers leads. The leader runs the
// transactions of all waiting callers in one commit. Then it passes the lead to the first caller
// that came in the meantime. While a commit waits for the disk, the next group gathers.
type writer struct {
	tx   Tx   // used by the leader only
	soft bool // commits on the connection don't wait for the disk; used by the leader only
	log  syncer

	patience  time.Duration // how long a transaction waits for an unusable database
	hurry     chan struct{} // closed when the process stops
	hurried   time.Time     // when hurry was closed
	hurryOnce sync.Once

	mu        sync.Mutex
	trouble   error     // why writes or reads wait; nil if they don't
	since     time.Time // when the trouble began
	troubled  int       // how many callers wait
	onTrouble func(error)
	led       bool // a caller leads
	closed    bool
	idle      sync.Cond // signalled when the last leader of a closed writer is done
	waiting   []*request
}

type request struct {
	fn       func(*Tx) error
	soft     bool // its commit need not wait for the disk
	early    bool // the caller waits for the disk itself, after the commit
	atStart  bool // it fails at once if the database is unusable
	noTx     bool // fn runs outside a transaction
	err      error
	panicked any           // value with which fn panicked
	after    []func()      // to call after the commit: see [Tx.After]
	wake     chan struct{} // closed when the request is done; receives a value when it leads
	done     bool
}

func newWriter(db *sql.DB, path string) *writer {
	w := &writer{tx: Tx{db: db, stmts: make(map[string]*sql.Stmt)},
		hurry: make(chan struct{})}
	w.log.path, w.log.repair = path, w.rewrite
	w.log.alone = func(fn func() error) error {
		return w.enqueue(&request{noTx: true, fn: func(*Tx) error { return fn() }})
	}
	w.idle.L = &w.mu
	return w
}

// do runs r.fn, possibly grouped with others, and returns once it is committed. A soft one does not
// wait for the disk.
func (w *writer) do(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.enqueue(r)
}

// exclusive runs fn on the connection that writes, outside a transaction and without any other
// request. Callers that come in the meantime wait, however long it takes.
func (w *writer) exclusive(ctx context.Context, fn func(db *sql.DB) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.enqueue(&request{noTx: true, fn: func(tx *Tx) error { return fn(tx.db) }})
}

func (w *writer) enqueue(r *request) error {
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
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// lead runs one group, whose first request is the caller's, and passes the lead on.
func (w *writer) lead() {
	w.mu.Lock()
	n := min(len(w.waiting), maxGroup)
	if i := slices.IndexFunc(w.waiting[:n], func(r *request) bool { return r.noTx }); i >= 0 {
		n = max(i, 1)
	}
	group := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	w.mu.Unlock()

	w.commit(group)
	for _, r := range group { // before the next group, so that the calls have the order of the commits
		if r.err == nil {
			r.runAfter()
		}
	}
	w.pass()
	for _, r := range group[1:] {
		r.done = true
		close(r.wake)
	}
}

// runAfter calls the functions that wait for the commit of r. It stores a panic for the caller of
// r, because the lead must be passed on.
func (r *request) runAfter() {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = p
		}
	}()
	for _, fn := range r.after {
		fn()
	}
}

// pass passes the lead to the first waiting caller, before the rest of the finished group is told.
// The next group thus starts without delay.
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

// commit runs the group in one transaction. Failures are rare, so it first tries without
// savepoints. If a request fails, the group runs again with a savepoint for each request: one
// failure then costs one more commit, not up to 256. If the whole transaction fails, each request
// gets its own.
func (w *writer) commit(group []*request) {
	if group[0].noTx {
		group[0].err = w.run(group[0])
		return
	}
	transact := func() error { return w.transact(group, w.run) }
	if len(group) == 1 && group[0].atStart {
		group[0].err = transact()
		return
	}
	err := w.persist(nil, transact)
	if len(group) == 1 || err == nil {
		group[0].err = err
		return
	}
	if !IsUnusable(err) {
		err = w.persist(nil, func() error { return w.transact(group, w.runApart) })
		if err == nil {
			return
		}
	}
	waited := IsUnusable(err) // all of them waited
	for _, r := range group {
		try := func() error { return w.transact([]*request{r}, w.run) }
		if waited {
			r.err = try()
		} else {
			r.err = w.persist(nil, try)
		}
	}
}

// transact calls run for each request of the group, in one transaction, and returns the first
// error. The commit waits for the disk unless all requests of the group are soft.
func (w *writer) transact(group []*request, run func(*request) error) error {
	soft := !slices.ContainsFunc(group, func(r *request) bool { return !r.soft })
	err := w.transactAs(soft, group, run)
	if errors.Is(err, errHard) {
		err = w.transactAs(false, group, run)
	}
	return err
}

// errHard reports that a soft transaction called [Tx.WaitForDisk]. SQLite can't change the
// durability of a transaction that has begun, so the group runs again.
var errHard = errors.New("store: the transaction must wait for the disk")

func (w *writer) transactAs(soft bool, group []*request, run func(*request) error) error {
	if !soft { // it must not count as durable while the log before it may have a hole
		if err := w.log.mend(); err != nil {
			return err
		}
	}
	if err := w.setSoft(soft); err != nil {
		return err
	}
	w.tx.hard = false
	if _, err := w.tx.Exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("store: begin: %w", err)
	}
	for _, r := range group {
		if err := run(r); err != nil {
			return errors.Join(err, w.rollback())
		}
	}
	if soft && w.tx.hard {
		return cmp.Or(w.rollback(), errHard)
	}
	if !soft {
		w.log.syncing()
	}
	if _, err := w.tx.Exec("COMMIT"); err != nil {
		if isFailedSync(err) { // of earlier soft commits, too
			w.log.failed()
		}
		return errors.Join(fmt.Errorf("store: commit: %w", err), w.rollback())
	}
	if soft {
		w.log.written()
	} else {
		w.log.synced()
	}
	return nil
}

// setSoft sets whether the next commit skips the wait for the disk. The statement is prepared anew
// each time, because SQLite executes this pragma when it is prepared.
func (w *writer) setSoft(soft bool) error {
	if soft == w.soft {
		return nil
	}
	level := "FULL"
	if soft {
		level = "NORMAL"
	}
	if err := w.tx.script("PRAGMA synchronous=" + level); err != nil {
		return fmt.Errorf("store: synchronous=%s: %w", level, err)
	}
	w.soft = soft
	return nil
}

// errReader reports that a reader keeps the write-ahead log from being emptied. It will end.
var errReader = errors.New("store: the write-ahead log still has a reader")

// rewrite moves the write-ahead log into the database and syncs the database. The caller leads.
func (w *writer) rewrite() error {
	if err := w.setSoft(false); err != nil {
		return err
	}
	var busy, frames, moved int
	err := w.tx.db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	if err == nil && busy != 0 {
		err = errReader
	}
	return err
}

// rollback ends the transaction. It returns nil if SQLite has already ended it.
func (w *writer) rollback() error {
	if _, err := w.tx.Exec("ROLLBACK"); err != nil && !isNoTransaction(err) {
		return fmt.Errorf("store: rollback: %w", err)
	}
	return nil
}

// runApart runs r in a savepoint. If r itself fails, its writes are undone and the error is stored
// in r. runApart returns an error if the whole transaction is broken.
func (w *writer) runApart(r *request) error {
	if _, err := w.tx.Exec("SAVEPOINT apart"); err != nil {
		return fmt.Errorf("store: savepoint: %w", err)
	}
	if r.err = w.run(r); r.err != nil {
		if IsUnusable(r.err) {
			return r.err
		}
		// After some errors SQLite ends the whole transaction, and the savepoint with it.
		if _, err := w.tx.Exec("ROLLBACK TO apart"); err != nil {
			return fmt.Errorf("store: undo: %w", errors.Join(r.err, err))
		}
	}
	if _, err := w.tx.Exec("RELEASE apart"); err != nil {
		return fmt.Errorf("store: release: %w", err)
	}
	return nil
}

// run calls r.fn. It stores a panic for the caller of r, because this goroutine may belong to
// another caller.
func (w *writer) run(r *request) (err error) {
	r.panicked, w.tx.after, w.tx.early = nil, nil, r.early
	defer func() {
		r.after = w.tx.after
		if p := recover(); p != nil {
			r.panicked = p
			err = fmt.Errorf("store: transaction panicked: %v", p)
		}
	}()
	return r.fn(&w.tx)
}

// close waits for the transactions under way and refuses further ones.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	for w.led {
		w.idle.Wait()
	}
	w.mu.Unlock()
	return errors.Join(w.log.close(), w.tx.close())
}
