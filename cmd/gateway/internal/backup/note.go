package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gateway/store/atomicfile"
)

// noteName is the file in the home with the time of the last backup. Backups don't contain it.
const noteName = "last-backup"

// Note records in the home that a backup was made at a time.
func Note(home string, at time.Time) error {
	// Others may read the file: it contains no secret, and another user may make the backups.
	text := at.UTC().Format(time.RFC3339) + "\n"
	if err := atomicfile.WritePath(filepath.Join(home, noteName), []byte(text), 0o644); err != nil {
		return fmt.Errorf("backup: note: %w", err)
	}
	return nil
}

// Last returns the time of the last backup of a home, or the zero time if there is none.
func Last(home string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(home, noteName))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	var at time.Time
	if err == nil {
		at, err = time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("backup: last one: %w", err)
	}
	return at, nil
}
