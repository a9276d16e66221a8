//go:build unix

package document

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A disk without room leaves the old document, whole, and nothing else.
func TestSaveFull(t *testing.T) {
	f := newFixture(t, nil)
	old := strings.Repeat("old\n", 100)
	if err := f.Save(ann, Memory, old, ""); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = 4096
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	err := f.Save(ann, Memory, strings.Repeat("new\n", 10_000), Hash(old))
	createErr := f.Create(ann, User, strings.Repeat("new\n", 10_000))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
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
