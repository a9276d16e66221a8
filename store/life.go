package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Life records one process's work with the database. It detects crashes and their causes: a
// process that is killed or panics leaves its life without an end. Each crash counts against all
// work that was under way. The next process runs work that was under way during several crashes
// alone, before anything else. If that process crashes, too, the cause is known.
//
// The methods of Life are safe for concurrent use.
type Life struct {
	// Crashed reports whether the previous process ended without [Life.End].
	Crashed bool

	// Suspect is the work that the previous process was trying alone when it crashed, as passed to
	// [Life.Try], or "". A crash with a suspect says nothing about the other work under way.
	Suspect string

	db      *DB
	id      int64
	parties atomic.Int32
	settled chan struct{}

	mu sync.Mutex // held during a trial
}

// BeginLife begins the life of this process. The number of parties is the number of components that
// may try work alone. Each of them calls [Life.EndTrials] once.
func BeginLife(ctx context.Context, db *DB, now time.Time, parties int) (*Life, error) {
	l := &Life{db: db, settled: make(chan struct{})}
	l.parties.Store(int32(parties))
	// A power loss can undo this. Then it does not count as a crash, and no work was its cause.
	err := db.txAtStart(ctx, true, func(tx *Tx) error {
		var ended int64
		l.Crashed, l.Suspect = false, ""
		err := tx.QueryRow("SELECT ended_ms, suspect FROM lives ORDER BY id DESC LIMIT 1").
			Scan(&ended, &l.Suspect)
		if err == nil && ended == 0 {
			l.Crashed = true
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if !l.Crashed {
			l.Suspect = ""
		}
		err = tx.QueryRow("INSERT INTO lives (started_ms) VALUES ($1) RETURNING id",
			now.UnixMilli()).Scan(&l.id)
		if err == nil {
			_, err = tx.Exec("DELETE FROM lives WHERE id < $1", l.id)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: begin life: %w", err)
	}
	return l, nil
}

// IsSuspect reports whether the previous process crashed and what may be the cause. If the process
// was trying some work alone, only that work may be the cause; otherwise any work may be.
func (l *Life) IsSuspect(what string) bool {
	return l.Crashed && (l.Suspect == "" || l.Suspect == what)
}

// End records that the process ends in order, with nothing under way.
func (l *Life) End(ctx context.Context, now time.Time) error {
	err := l.db.Tx(ctx, func(tx *Tx) error {
		_, err := tx.Exec("UPDATE lives SET ended_ms = $1 WHERE id = $2", now.UnixMilli(), l.id)
		return err
	})
	return Wrap(err, "store: end life")
}

// Try calls try while nothing else is tried. Before that it records what; if the process crashes
// during the call, what is the Suspect of the next life. Try returns only errors of the store.
func (l *Life) Try(ctx context.Context, what string, try func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.suspect(ctx, what); err != nil {
		return err
	}
	try()
	return l.suspect(context.WithoutCancel(ctx), "")
}

func (l *Life) suspect(ctx context.Context, what string) error {
	err := l.db.Tx(ctx, func(tx *Tx) error {
		_, err := tx.Exec("UPDATE lives SET suspect = $1 WHERE id = $2", what, l.id)
		return err
	})
	return Wrap(err, "store: try %s", what)
}

// EndTrials records that one party has nothing left to try alone.
func (l *Life) EndTrials() {
	if l.parties.Add(-1) == 0 {
		close(l.settled)
	}
}

// TrialsDone returns a channel that is closed once all parties have called [Life.EndTrials]. Trials
// that need not run alone wait for it.
func (l *Life) TrialsDone() <-chan struct{} { return l.settled }
