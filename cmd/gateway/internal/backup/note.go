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

// noteName is the file in the home that says when the last backup was made. It is in no backup.
const noteName = "last-backup"

// Note notes in the home that a backup was made.
func Note(home string, at time.Time) error {
	// It holds no secret, and who makes backups may be another user than who reads it.
	text := at.UTC().Format(time.RFC3339) + "\n"
	if err := atomicfile.WritePath(filepath.Join(home, noteName), []byte(text), 0o644); err != nil {
		return fmt.Errorf("backup: note: %w", err)
	}
	return nil
}

// Last returns when the last backup of a home was made, the zero time if there never was one.
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
