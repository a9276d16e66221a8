//go:build unix

package document

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallFiles is an environment variable that makes the test below set a limit for the size of
// files. The limit is for a whole process, so the test runs in a child process: the first process
// writes other files.
const smallFiles = "GATEWAY_TEST_SMALL_FILES"

// If the disk is full, Save keeps the old document unchanged and leaves no other file.
func TestSaveFull(t *testing.T) {
	if os.Getenv(smallFiles) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestSaveFull$", "-test.v")
		child.Env = append(os.Environ(), smallFiles+"=1")
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestSaveFull") {
			t.Errorf("with a limit: %v\n%s", err, out)
		}
		return
	}
	f := newFixture(t, nil)
	old := strings.Repeat("old\n", 100)
	if err := f.Save(ann, Memory, old, ""); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = 4096
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	err := f.Save(ann, Memory, strings.Repeat("new\n", 10_000), hashOf(old))
	createErr := f.Create(ann, User, strings.Repeat("new\n", 10_000))
	if err == nil || createErr == nil {
		t.Errorf("without room, Save = %v, Create = %v; want errors", err, createErr)
	}
	if text, _, err := f.Read(ann, Memory); err != nil || text != old {
		t.Errorf("the document is %.20q, %v; want the old one", text, err)
	}
	if entries, err := os.ReadDir(filepath.Join(f.scopes, string(ann))); err != nil ||
		len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
}
