package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

// A file is replaced as a whole. If it can't be replaced, it stays as it was. No temporary file
// is left beside it.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	for _, text := range []string{"one", "two"} {
		if err := WritePath(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file has %q, %v, want %q", got, err, text)
		}
	}
	taken := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WritePath(taken, []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if err := WritePath(filepath.Join(dir, "none", "a.txt"), nil, 0o600); err == nil {
		t.Error("a file was written into a folder that isn't there")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v, %v, want the file and the folder", entries, err)
	}
}
