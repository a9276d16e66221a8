package store

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/sqlite"
)

// A hard transaction waits if its sync and the sync of the repair fail. It succeeds when the
// disk works again. It needs a repair first, because soft commits before it may be lost.
func TestTxFailsToSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "g.db")
		db := open(t, path)
		log := &db.write.log
		repair, repaired := log.repair, 0
		log.use(path, func() error {
			repaired++
			return repair()
		})
		if err := db.Tx(t.Context(), insert("a")); err != nil {
			t.Fatal(err)
		}
		undo := breakSync(t, path+"-wal")
		time.AfterFunc(time.Minute, undo)
		began := time.Now()
		if err := db.Tx(t.Context(), insert("b")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("the transaction took %v, want a minute", took)
		}
		if repaired < 2 {
			t.Errorf("%d repairs were tried, want at least one before and one after the minute",
				repaired)
		}
		if got := count(t, db.Read(t.Context())); got != 2 {
			t.Errorf("%d rows, want 2", got)
		}
	})
}

// breakSync makes the syncs of a file that this process has open fail until undo is called. Data
// that is written meanwhile is lost.
func breakSync(t *testing.T, path string) (undo func()) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // accepts writes, but can't be synced
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var found []int // find all of them before the numbers of closed files are used again
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == path {
			fd, _ := strconv.Atoi(e.Name())
			found = append(found, fd)
		}
	}
	kept := make(map[int]int)
	for _, fd := range found {
		if kept[fd], err = syscall.Dup(fd); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(null.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	if len(kept) == 0 {
		t.Fatalf("%s is not open", path)
	}
	return func() {
		for fd, old := range kept {
			if err := syscall.Dup3(old, fd, syscall.O_CLOEXEC); err != nil {
				t.Error(err)
			}
			_ = syscall.Close(old)
		}
	}
}

// A commit syncs the data and not the times of the file.
func TestFdatasync(t *testing.T) {
	open(t, filepath.Join(t.TempDir(), "g.db"))
	if !sqlite.FdatasyncEnabled() {
		t.Error("a commit waits for the times of the file, too")
	}
}
