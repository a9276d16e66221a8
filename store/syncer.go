package store

import (
	"fmt"
	"os"
	"sync"
	"time"

	"gateway/store/fault"
)

// softDelay is the maximum time for which a power loss can still undo a soft commit. The next hard
// commit ends it earlier.
const softDelay = 50 * time.Millisecond

// syncRetry is the pause after an error before a syncer tries again.
const syncRetry = time.Second

// A syncer syncs the write-ahead log after soft commits that no hard commit follows, or when a
// caller of wait needs it. It does not hold up the writers. The log is sequential, so one sync
// makes all earlier commits durable.
type syncer struct {
	path   string                      // of the database
	repair func() error                // makes the log durable after a failed sync
	alone  func(fn func() error) error // calls fn while no transaction runs
	one    sync.Mutex                  // held during a sync
	file   *os.File                    // the log, once it was synced; guarded by one

	mu      sync.Mutex
	last    int64       // number of the last soft commit
	durable int64       // number of the last soft commit that is on the disk
	broken  bool        // a sync has failed, and repair has not succeeded since
	timer   *time.Timer // nil if no flush is due
	closed  bool
	flushes sync.WaitGroup // due or under way
}

// written records a soft commit.
func (s *syncer) written() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.arm(softDelay)
}

// syncing records that a hard commit begins.
func (s *syncer) syncing() { fault.Syncing(s.path, fault.Frames(s.path)) }

// synced records a hard commit: all earlier commits are on the disk.
func (s *syncer) synced() {
	fault.Synced(s.path, fault.Frames(s.path))
	fault.Committed(s.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.broken { // otherwise a sync has failed during the commit
		s.durable = s.last
	}
}

// arm schedules flush after d unless it is scheduled already. s.mu is held.
func (s *syncer) arm(d time.Duration) {
	if s.timer == nil && !s.closed {
		s.flushes.Add(1)
		s.timer = time.AfterFunc(d, s.flush)
	}
}

// flush syncs the log unless all soft commits are on the disk already.
func (s *syncer) flush() {
	defer s.flushes.Done()
	s.mu.Lock()
	s.timer = nil
	s.mu.Unlock()
	err := s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.arm(syncRetry)
	} else if s.durable < s.last {
		s.arm(softDelay)
	}
}

// wait syncs the log unless all soft commits so far are on the disk already. Callers that come
// during a sync share the next one.
func (s *syncer) wait() error {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	s.one.Lock()
	defer s.one.Unlock()
	s.mu.Lock()
	needed, broken := s.durable < last, s.broken
	last = s.last
	s.mu.Unlock()
	if !needed {
		return nil
	}
	frames := fault.Frames(s.path)
	if !broken && s.sync() != nil {
		s.failed()
		broken = true
	}
	if broken {
		if err := s.alone(s.mend); err != nil {
			return err
		}
		// The disk must know, too, that the log is empty. What the log had before its hole would hide
		// newer pages of the database after a power loss.
		if err := s.sync(); err != nil {
			s.failed()
			return fmt.Errorf("store: sync the repaired write-ahead log: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fault.Synced(s.path, frames)
	s.durable = max(s.durable, last)
	return nil
}

// failed records that a sync of the log has failed.
//
// After that the system may mark the unwritten pages as clean. Another sync would then succeed
// without writing them, so only the repair counts, whenever it succeeds.
func (s *syncer) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
}

// mend repairs the log if a sync of it has failed. No transaction may run meanwhile. A sync must
// follow, or a hard commit.
func (s *syncer) mend() error {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	if !broken {
		return nil
	}
	if err := s.repair(); err != nil {
		return fmt.Errorf("store: repair the write-ahead log: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = false
	return nil
}

// sync syncs the log. SQLite uses the same file for as long as the database is open, so the file
// stays open, too.
func (s *syncer) sync() (err error) {
	if s.file == nil {
		if s.file, err = os.OpenFile(s.path+"-wal", os.O_RDWR, 0); err != nil {
			return err
		}
	}
	return s.file.Sync()
}

// close waits for a flush under way. Closing the database syncs the rest.
func (s *syncer) close() error {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil && s.timer.Stop() {
		s.timer = nil
		s.flushes.Done()
	}
	s.mu.Unlock()
	s.flushes.Wait()
	s.one.Lock()
	defer s.one.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
