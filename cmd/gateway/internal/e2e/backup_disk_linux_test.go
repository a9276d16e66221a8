package e2e

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gateway/store"
)

// TestBackupDiskFull checks that a backup on a full disk fails with a message about it, leaves no
// files behind and keeps the earlier backup.
func TestBackupDiskFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.start()
	p.ready()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		// Mounting needs privileges. The tests of package backup check failing backups without
		// them.
		t.Logf("no disk of its own can be made: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(disk, "backup.tar.gz")
	if out, err := w.gateway("backup", file); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(w.home, "workspace", "big")
	if err := os.WriteFile(big, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := w.gateway("backup", "--force", file)
	if err == nil || !strings.Contains(out, "is full") {
		t.Errorf("backup to a full disk: %v\n%s", err, out)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v; want the first backup", left, err)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the first backup has changed, %v", err)
	}
}

// TestKilledBackup checks that the gateway removes the copy of all data that a killed backup has
// left in its home, so that no data stays that people erase.
func TestKilledBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.start("GATEWAY_TIME_SCALE=3600").ready() // it looks every second
	w.wantReply(7, "my secret is timbuktu", "timbuktu")
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise) // it never fails
	writeFile(t, filepath.Join(w.home, "workspace", "noise"), noise)
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	// Nobody reads what the backup writes, except for its beginning.
	backup := exec.Command(path, "backup", "-")
	backup.Env = w.environ()
	out, err := backup.StdoutPipe()
	if err == nil {
		err = backup.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := backup.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = backup.Wait() // it was killed
	left, err := filepath.Glob(filepath.Join(w.home, ".gateway-backup-*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("left are %q, %v: it proves nothing", left, err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(left[0], old, old); err != nil {
		t.Fatal(err)
	}
	w.telegram.Say(7, 7, "/forget me now")
	in := &guestWorld{world: w}
	isCopy := func(file string) bool { return strings.HasPrefix(file, "/.gateway-") }
	w.eventually("the copy to be gone", func(*store.DB) bool {
		return !slices.ContainsFunc(in.traces("timbuktu"), isCopy)
	})
	w.eventually("all to be gone", func(*store.DB) bool { return len(in.traces("timbuktu")) == 0 })
}
