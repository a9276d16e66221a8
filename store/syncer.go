package store

import (
	"os"
	"sync"
	"time"

	"gateway/store/fault"
)

// softDelay bounds how long a soft transaction stays off the disk, in what power loss would take.
// The next hard commit ends the wait earlier.
const softDelay = 50 * time.Millisecond

// syncRetry is how long a syncer waits before it tries again after an error.
const syncRetry = time.Second

// A syncer writes the write-ahead log to the disk after soft commits that no hard commit follows.
// It does that beside the writers. The log is sequential, so syncing it makes everything durable
// that was committed before.
type syncer struct {
	path   string       // of the database
	repair func() error // makes the log durable in another way, after an error

	mu      sync.Mutex
	last    int64       // number of the last soft commit
	durable int64       // number of the last soft commit that is on the disk
	timer   *time.Timer // nil if no flush is due
	closed  bool
	flushes sync.WaitGroup // due or under way
}

// written notes a soft commit.
func (s *syncer) written() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.arm(softDelay)
}

// syncing notes that a hard commit begins.
func (s *syncer) syncing() { fault.Syncing(s.path, fault.Frames(s.path)) }

// synced notes a hard commit, after which all earlier ones are on the disk.
func (s *syncer) synced() {
	fault.Synced(s.path, fault.Frames(s.path))
	fault.Committed(s.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durable = s.last
}

// arm has flush called after d, unless that is due already. It needs s.mu.
func (s *syncer) arm(d time.Duration) {
	if s.timer == nil && !s.closed {
		s.flushes.Add(1)
		s.timer = time.AfterFunc(d, s.flush)
	}
}

// flush syncs the log if a soft commit is not on the disk yet.
func (s *syncer) flush() {
	defer s.flushes.Done()
	s.mu.Lock()
	last, needed := s.last, s.durable < s.last
	s.timer = nil
	s.mu.Unlock()
	if !needed {
		return
	}
	frames := fault.Frames(s.path)
	err := syncFile(s.path + "-wal")
	if err != nil {
		// The system may call pages clean that it could not write, so that a second sync would
		// succeed without writing them.
		err = s.repair()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.arm(syncRetry)
		return
	}
	fault.Synced(s.path, frames)
	s.durable = max(s.durable, last)
	if s.durable < s.last {
		s.arm(softDelay)
	}
}

// close waits for a flush under way. Closing the database syncs what is left.
func (s *syncer) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil && s.timer.Stop() {
		s.timer = nil
		s.flushes.Done()
	}
	s.mu.Unlock()
	s.flushes.Wait()
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
