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
}

// Frames returns how far the log of the database at path reaches now. It reads that from the index
// of the log, whose layout SQLite documents in "WAL-mode File Format".
func Frames(path string) WAL {
	if !recording {
		return WAL{}
	}
	f, err := os.Open(path + "-shm")
	if err != nil {
		return WAL{}
	}
	defer f.Close()
	var head [48]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return WAL{}
	}
	return WAL{
		Salt:   binary.BigEndian.Uint64(head[32:40]), // as the log has it
		Frames: binary.NativeEndian.Uint32(head[16:20]),
	}
}

var recordMu sync.Mutex

// Synced notes in PATH.synced that the log of the database at path is on the disk as far as w. The
// file is made anew and renamed, so that a kill leaves it whole.
func Synced(path string, w WAL) {
	if !recording {
		return
	}
	recordMu.Lock()
	defer recordMu.Unlock()
	name := path + ".synced"
	err := os.WriteFile(name+".new", fmt.Appendf(nil, "%d %d", w.Salt, w.Frames), 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		panic(fmt.Errorf("fault: %s: %w", filepath.Base(name), err))
	}
}
