package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"
)

// emptyTries, emptyPatience and emptyPause say how often, how long and with which pauses emptyLog
// tries to empty the write-ahead log.
const (
	emptyTries    = 25
	emptyPatience = 20 * time.Millisecond
	emptyPause    = 100 * time.Millisecond
)

// emptyLog moves the write-ahead log into the database and cuts it to zero. Writers wait for some
// milliseconds at a time: while somebody still reads the log, they continue between the tries.
func (db *DB) emptyLog(ctx context.Context) error {
	pause := time.NewTicker(emptyPause)
	defer pause.Stop()
	for try := 1; ; try++ {
		// First copy as much as possible beside the writers, so that they wait less afterwards.
		_, err := checkpointFile(ctx, db.path, "PASSIVE")
		if err == nil {
			err = db.write.exclusive(ctx, func(*sql.DB) error {
				_, err := checkpointFile(ctx, db.path, "TRUNCATE")
				return err
			})
		}
		if err == nil || try == emptyTries {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkpointFile is [checkpoint] on a connection of its own.
func checkpointFile(ctx context.Context, path, mode string) (held int64, err error) {
	pool, err := sql.Open("sqlite", dsn(path,
		fmt.Sprintf("busy_timeout(%d)", emptyPatience.Milliseconds())))
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	return checkpoint(ctx, pool, mode)
}

// checkpoint moves the write-ahead log into the database: as much as possible without waiting
// (PASSIVE), or all of it while writers wait (TRUNCATE). It returns the number of
// bytes that stay in the log because a read still needs older pages, or -1 if another checkpoint is
// under way.
func checkpoint(ctx context.Context, pool *sql.DB, mode string) (held int64, err error) {
	var busy, frames, moved, size int64
	err = pool.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &frames, &moved)
	if err == nil {
		err = pool.QueryRowContext(ctx, "PRAGMA page_size").Scan(&size)
	}
	switch {
	case err != nil:
		return 0, err
	case busy != 0 && mode == "TRUNCATE":
		return 0, errors.New("the write-ahead log still has a reader")
	case busy != 0:
		return -1, nil
	}
	return (frames - moved) * size, nil
}

// checkpointSize is the size of the write-ahead log, in bytes, at which Run empties it.
const checkpointSize = 4 << 20

// MaxHeld is how much of the write-ahead log, in bytes, stays after a checkpoint only if somebody
// has been reading the database for long.
const MaxHeld = 64 << 20

// OnLongRead sets the function that [DB.Run] calls when a read keeps more than [MaxHeld] bytes in
// the write-ahead log, with their number, and with 0 when that is over. It must be called before
// Run.
func (db *DB) OnLongRead(fn func(held int64)) { db.onLongRead = fn }

// Held moves as much of the write-ahead log into the database as possible without waiting. It
// returns how many bytes stay, as far as it can tell, because somebody reads the database.
func (db *DB) Held(ctx context.Context) (int64, error) {
	held, err := checkpointFile(ctx, db.path, "PASSIVE")
	return max(held, 0), Wrap(err, "store: checkpoint")
}

// Run keeps the write-ahead log short until ctx is done, without blocking the writers.
func (db *DB) Run(ctx context.Context) error {
	pool, err := sql.Open("sqlite", dsn(db.path, "busy_timeout(0)"))
	if err != nil {
		return fmt.Errorf("store: checkpoint: %w", err)
	}
	pool.SetMaxOpenConns(1)
	defer pool.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for long := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var held int64
		if st, err := os.Stat(db.path + "-wal"); err == nil && st.Size() >= checkpointSize {
			held, err = checkpoint(ctx, pool, "PASSIVE")
			if err != nil && !IsUnusable(err) && ctx.Err() == nil {
				return fmt.Errorf("store: checkpoint: %w", err)
			}
			if err != nil || held < 0 { // not known
				continue
			}
		}
		if is := held > MaxHeld; is != long && db.onLongRead != nil {
			long = is
			db.onLongRead(held)
		}
	}
}
