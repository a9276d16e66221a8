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

// A Life is the time in which one process works with the database. A process that is killed, or
// that a bug ends, leaves its life without an end, and what it had under way may be the reason. So
// each such end is counted for what was under way. What has been under way at several of them is
// tried alone by the next process, before all else: if that one ends as well, it is known why.
//
// Its methods may be called concurrently.
type Life struct {
	// Crashed reports whether the process before this one ended without [Life.End].
	Crashed bool

	// Suspect is what that process tried alone when it ended so, as [Life.Try] was told, or "". An
	// end with a suspect says nothing about what else was under way.
	Suspect string

	db      *DB
	id      int64
	parties atomic.Int32
	settled chan struct{}

	mu sync.Mutex // held during a trial
}

// BeginLife begins the life of this process. So many parties, each of which calls [Life.Tried]
// once, have something to try alone before all else begins.
func BeginLife(ctx context.Context, db *DB, now time.Time, parties int) (*Life, error) {
	l := &Life{db: db, settled: make(chan struct{})}
	l.parties.Store(int32(parties))
	err := db.Tx(ctx, func(tx *Tx) error {
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

// Blames reports whether the process before this one ended without a word and what was under way
// may be the reason: all that was, or only what was tried alone.
func (l *Life) Blames(what string) bool {
	return l.Crashed && (l.Suspect == "" || l.Suspect == what)
}

// End notes that this process ends in order, with nothing under way.
func (l *Life) End(ctx context.Context, now time.Time) error {
	err := l.db.Tx(ctx, func(tx *Tx) error {
		_, err := tx.Exec("UPDATE lives SET ended_ms = $1 WHERE id = $2", now.UnixMilli(), l.id)
		return err
	})
	if err != nil {
		return fmt.Errorf("store: end life: %w", err)
	}
	return nil
}

// Try runs try while nothing else is tried, and notes before that it does: if the process ends
// meanwhile, what is the Suspect of the next life. An error is one of the store.
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
	if err != nil {
		return fmt.Errorf("store: try %s: %w", what, err)
	}
	return nil
}

// Tried notes that one of the parties has nothing to try alone any more.
func (l *Life) Tried() {
	if l.parties.Add(-1) == 0 {
		close(l.settled)
	}
}

// Settled returns a channel that is closed when all parties have called [Life.Tried]. What may be
// tried beside others waits for that.
func (l *Life) Settled() <-chan struct{} { return l.settled }
