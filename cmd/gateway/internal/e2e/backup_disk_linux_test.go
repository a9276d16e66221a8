package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
