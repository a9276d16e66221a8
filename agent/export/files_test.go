package export

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/memory"
)

// An export contains each document, also one that is named like an export that was sent.
func TestExportOfDocuments(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = errors.Join(os.Mkdir(filepath.Join(dir, "person-1"), 0o700),
		os.WriteFile(filepath.Join(dir, "person-1", "export-plan.md"), []byte("To Ghana."), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := NewZip(&b, 0, time.Now())
	r := &run{Exporter: &Exporter{Memory: root, Before: filepath.Join(dir, "none")}, to: z,
		clean: cleaner(nil), owned: background.Erasure{Scopes: []memory.Scope{"person-1"}}}
	if err := errors.Join(r.documents(t.Context()), z.Close()); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(archive.File, func(f *zip.File) bool {
		return f.Name == "memory/person-1/export-plan.md"
	}) {
		t.Errorf("the document is not among %d files", len(archive.File))
	}
}

// On Windows, no name in an archive leads out of the folder into which it is unpacked.
func TestZipNames(t *testing.T) {
	var b bytes.Buffer
	z := NewZip(&b, 0, time.Now())
	if _, err := z.Create(`memory/person-1/..\..\..\evil.bat`); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.File[0].Name, "memory/person-1/.._.._.._evil.bat"; got != want {
		t.Errorf("the archive has %q, want %q", got, want)
	}
}
