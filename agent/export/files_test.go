package export

import (
	"archive/zip"
	"bytes"
	"testing"
	"time"
)

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
