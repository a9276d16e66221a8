// Package backup writes all data of a running gateway into one file, and restores it.
//
// [Write] makes the archive and [Restore] unpacks it. The caller lists the parts of the gateway's
// data and their paths as a list of [Part].
//
// The order of copying makes the copy consistent. The database is copied first, as of one moment,
// and everything else after it. So the archive contains every file to which the database refers,
// unless the file was removed in between. Readers handle missing files anyway. Files that were
// added in between do no harm: old files without a row are removed later, repeated work finds
// versions of documents by their names, and the filter of a part drops history lines that are not
// in the copied database. If the files were copied first, rows could refer to missing files.
//
// An archive is a gzipped tar. Its first file, manifest.json, lists the other files with their
// sizes and SHA-256 sums. Write must know those first, so it copies everything into a folder
// beside the archive. It hard-links files that never change, if the file system supports that.
//
// Limits: the archive does not contain links, sockets, devices, files that this user may not
// read, or files whose names are not UTF-8. An archive has at most a million files. The package
// owns no tables.
//
// Files: the archive, and .gateway-backup-* and .gateway-restore-* beside the files that are being
// written. [Write], [Restore] and [Sweep] remove those that a killed process has left.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gateway/store"
	"gateway/store/atomicfile"
)

// A Kind says how a [Part] is copied.
type Kind int

// The kinds of parts.
const (
	Database Kind = iota // an SQLite file, copied as of one moment
	File                 // one file
	Folder               // all files below a folder, copied one after another
	Frozen               // a folder whose files are created and removed but never changed
)

// A Part is one part of a gateway's data.
type Part struct {
	Name string // unique name in the archive: one path element
	Path string // absolute path of the file or folder
	Kind Kind

	// Filter, if not nil, copies each file of a Folder and can change its content. The name is
	// relative to the folder and has slashes.
	Filter func(name string, w io.Writer, r io.Reader) error
}

// An Entry is a file or a folder of an archive.
type Entry struct {
	Name   string `json:"name"`           // with slashes; the name of a folder ends in a slash
	Size   int64  `json:"size"`           // bytes
	SHA256 string `json:"sha256"`         // hexadecimal; "" for a folder
	Mode   uint32 `json:"mode,omitempty"` // permissions
}

// Format is the version of archives that this package writes. It can read all versions up to
// Format.
const Format = 1

// program is the name of the program in the manifest.
const program = "gateway"

// A Manifest describes the content of an archive.
type Manifest struct {
	Program string         `json:"program"`
	Format  int            `json:"format"`
	Version string         `json:"version"` // version of the gateway
	Created time.Time      `json:"created"` // time of the copy of the database
	Schema  map[string]int `json:"schema"`  // version of each package's tables
	Entries []Entry        `json:"entries"`

	// Skipped has the names of files that were not copied, at most 20.
	Skipped []string `json:"skipped,omitempty"`
}

// Size returns the total size of the files in bytes.
func (m *Manifest) Size() (n int64) {
	for _, e := range m.Entries {
		n += e.Size
	}
	return n
}

const (
	manifestName = "manifest.json"
	maxEntries   = 1_000_000
	maxSkipped   = 20 // names
)

// maxManifest is the maximum size of the manifest in bytes. Tests lower it.
var maxManifest int64 = 256 << 20

// Errors that callers can test for.
var (
	// ErrExists means that the archive, or data to restore, already exists.
	ErrExists = errors.New("it exists already")
	// ErrForeign means that the file is not a complete archive of a gateway.
	ErrForeign = errors.New("not a complete backup of a gateway")
	// ErrNewer means that the archive has a newer format.
	ErrNewer = errors.New("made by a newer gateway")
)

// foreign returns an [ErrForeign] with the reason.
func foreign(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrForeign}, args...)...)
}

// A contextReader is a reader that stops with an error when its context ends.
type contextReader struct {
	ctx context.Context // of this call
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// noteName is the file in the home with the time of the last backup. Backups don't contain it.
const noteName = "last-backup"

// Note records in the home that a backup was made at a time.
func Note(home string, at time.Time) error {
	// Others may read the file: it contains no secret, and another user may make the backups.
	text := at.UTC().Format(time.RFC3339) + "\n"
	err := atomicfile.WritePath(filepath.Join(home, noteName), []byte(text), 0o644)
	return store.Wrap(err, "backup: note")
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
	return at, store.Wrap(err, "backup: last one")
}
