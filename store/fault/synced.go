//go:build faults

package fault

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// recording is set by GATEWAY_SYNCED. It makes the process record, after each sync of a database,
// how much of the write-ahead log is on the disk.
var recording = os.Getenv("GATEWAY_SYNCED") != ""

// A WAL is a position in a write-ahead log: the salt of its header and a number of frames.
type WAL struct {
	Salt   uint64
	Frames uint32

	order int64 // increases with each call of Frames
}

// indexes holds the open write-ahead-log index of each database, by path. The files are never
// closed: closing one would release SQLite's own locks on it, because POSIX locks belong to the
// process.
var (
	recordMu sync.Mutex
	indexes  = make(map[string]*os.File)
	order    int64
	noted    = make(map[string]int64) // order of the newest mark in PATH.synced
)

// Frames returns the end of the write-ahead log of the database at path. It reads the index of the
// log, whose layout SQLite documents in "WAL-mode File Format".
func Frames(path string) WAL {
	if !recording {
		return WAL{}
	}
	recordMu.Lock()
	defer recordMu.Unlock()
	f, ok := indexes[path]
	if !ok {
		var err error
		if f, err = os.Open(path + "-shm"); err != nil {
			return WAL{}
		}
		indexes[path] = f
	}
	var head [48]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return WAL{}
	}
	order++
	return WAL{
		order:  order,
		Salt:   binary.BigEndian.Uint64(head[32:40]), // the same bytes as in the log
		Frames: binary.NativeEndian.Uint32(head[16:20]),
	}
}

// Syncing records in PATH.syncing that a commit begins which waits for the disk, with the log at w.
// Others can see that commit before Synced is called, but not before it is on the disk.
func Syncing(path string, w WAL) {
	recordMu.Lock()
	defer recordMu.Unlock()
	record(path+".syncing", w)
}

// Synced records in PATH.synced that the log of the database at path is on the disk up to w.
func Synced(path string, w WAL) {
	recordMu.Lock()
	defer recordMu.Unlock()
	if w.order > noted[path] { // otherwise a later sync was faster
		noted[path] = w.order
		record(path+".synced", w)
	}
}

// Committed removes the record of Syncing. The caller calls Synced first.
func Committed(path string) {
	if recording {
		_ = os.Remove(path + ".syncing") // missing if it could not be created
	}
}

// record replaces a file atomically, so that it is complete even after a kill. recordMu is held.
func record(name string, w WAL) {
	if !recording {
		return
	}
	err := os.WriteFile(name+".new", fmt.Appendf(nil, "%d %d", w.Salt, w.Frames), 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		panic(fmt.Errorf("fault: %s: %w", filepath.Base(name), err))
	}
}
