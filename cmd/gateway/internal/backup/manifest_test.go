package backup

import (
	"bytes"
	"strings"
	"testing"
)

// An archive whose list of files is too long for a restore is not made.
func TestLongManifest(t *testing.T) {
	from := newHome(t).fill()
	before := maxManifest
	t.Cleanup(func() { maxManifest = before })
	for maxManifest = 1 << 10; ; maxManifest *= 2 {
		var b bytes.Buffer
		_, err := Write(t.Context(), "-", from.parts(), WriteOptions{Version: "1.0", Stream: &b,
			Scratch: t.TempDir()})
		if err == nil {
			_, err = newHome(t).restore(b.Bytes(), false)
			if err != nil || maxManifest == 1<<10 {
				t.Errorf("with a limit of %d bytes there was an archive; its restore: %v", maxManifest, err)
			}
			return
		}
		if b.Len() > 0 || !strings.Contains(err.Error(), "list of the") {
			t.Fatalf("Write wrote %d bytes: %v", b.Len(), err)
		}
	}
}
