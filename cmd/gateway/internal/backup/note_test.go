package backup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Last returns the newest note. Without a note it returns the zero time. A note that is not a
// time is an error.
func TestNote(t *testing.T) {
	home := t.TempDir()
	if at, err := Last(home); !at.IsZero() || err != nil {
		t.Errorf("Last = %v, %v; want never", at, err)
	}
	first := time.Date(2026, 3, 1, 4, 15, 0, 0, time.FixedZone("", 3600))
	for _, at := range []time.Time{first, first.Add(24 * time.Hour)} {
		if err := Note(home, at); err != nil {
			t.Fatal(err)
		}
		if got, err := Last(home); !got.Equal(at) || err != nil {
			t.Errorf("Last = %v, %v; want %v", got, err, at)
		}
	}
	if list, err := os.ReadDir(home); len(list) != 1 || err != nil {
		t.Errorf("the home has %v, %v; want one file", list, err)
	}
	if err := os.WriteFile(filepath.Join(home, noteName), []byte("soon"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Last(home); err == nil {
		t.Error("Last takes nonsense")
	}
	if err := Note(filepath.Join(home, "none"), first); err == nil {
		t.Error("Note succeeds where there is no home")
	}
}
