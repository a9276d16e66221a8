//go:build faults

package fault

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// recording is set by GATEWAY_SYNCED: the process then notes after each sync of a database how much
// of its write-ahead log is on the disk.
var recording = os.Getenv("GATEWAY_SYNCED") != ""

// A WAL says how far a write-ahead log reaches: the salt of its header, and a number of frames.
type WAL struct {
	Salt   uint64
	Frames uint32

	order int64 // in which Frames has returned it
}

// indexes are the open indexes of logs, by the path of the database. They are never closed: that
// would take SQLite's own locks on them away, which belong to the process.
var (
	recordMu sync.Mutex
	indexes  = make(map[string]*os.File)
	order    int64
	noted    = make(map[string]int64) // order of the newest mark in PATH.synced
)

// Frames returns how far the log of the database at path reaches now. It reads that from the index
// of the log, whose layout SQLite documents in "WAL-mode File Format".
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
		Salt:   binary.BigEndian.Uint64(head[32:40]), // as the log has it
		Frames: binary.NativeEndian.Uint32(head[16:20]),
	}
}

// Syncing notes in PATH.syncing that a commit begins that waits for the disk, when the log reaches
// as far as w. Others can see that commit before Synced is called, but only once it is on the disk.
func Syncing(path string, w WAL) {
	recordMu.Lock()
	defer recordMu.Unlock()
	record(path+".syncing", w)
}

// Synced notes in PATH.synced that the log of the database at path is on the disk as far as w.
func Synced(path string, w WAL) {
	recordMu.Lock()
	defer recordMu.Unlock()
	if w.order > noted[path] { // else a later sync was faster
		noted[path] = w.order
		record(path+".synced", w)
	}
}

// Committed ends what Syncing has begun. Synced comes before it.
func Committed(path string) {
	if recording {
		_ = os.Remove(path + ".syncing") // there is none if the file could not be made
	}
}

// record makes a file anew and renames it, so that a kill leaves it whole. It needs recordMu.
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
