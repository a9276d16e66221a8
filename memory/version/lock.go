package version

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// errLocked reports that somebody else has the lock.
var errLocked = errors.New("locked")

const (
	lockPause = 20 * time.Millisecond
	maxLock   = time.Minute
)

// lock waits until nobody else, in this process or another, changes the history. The lock is that
// of the file: closing it ends it, and so does the end of the process and of the git it has run.
func (t *Tree) lock(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(t.store.dir, 0o700); err != nil {
		return nil, fmt.Errorf("version: lock %s: %w", t.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxLock)
	defer cancel()
	pause := time.NewTicker(lockPause)
	defer pause.Stop()
	for {
		f, err := t.tryLock()
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, errLocked) {
			return nil, fmt.Errorf("version: lock %s: %w", t.name, err)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("version: lock %s: %w", t.name, ctx.Err())
		}
	}
}

// tryLock takes the lock, if nobody else has it.
func (t *Tree) tryLock() (*os.File, error) {
	f, err := os.OpenFile(t.path(".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = tryLock(f); err == nil {
		err = t.stillLock(f)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// stillLock reports [errLocked] if the file was removed, with the history, before we had it.
func (t *Tree) stillLock(f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(t.path(".lock"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, now) {
		return errLocked
	}
	return err
}
