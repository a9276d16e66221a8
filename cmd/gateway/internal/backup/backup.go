// Package backup writes all that a gateway knows into one file while it runs, and puts it back.
//
// [Write] makes the archive and [Restore] unpacks it. The caller names the parts of the gateway's
// data, and their places, by a list of [Part].
//
// The order of copying makes the copy consistent. The database comes first, as of one moment, and
// everything else after it. So the archive has every file that the database refers to, unless the
// file was removed in between, which every reader of files expects anyway. Later additions are
// surplus: files without a row are removed when they are old, repeated work finds versions of
// documents by their names, and the filter of a part leaves out lines of a history that the
// database does not have. Copying files first would make rows that refer to missing files.
//
// An archive is a gzipped tar. Its first file, manifest.json, names the others with their sizes and
// SHA-256 sums. To know those before it writes anything, Write copies everything into a folder
// beside the archive; it links files that never change, where the file system can.
//
// Limits: links, sockets and devices are left out, as are files that this user may not read or
// whose names are not UTF-8. An archive has at most a million files. The package owns no tables.
// Files: the archive, and .gateway-backup-* and .gateway-restore-* beside the files that are being
// written; [Write] and [Restore] remove those that a kill has left.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Kind says how a [Part] is copied.
type Kind int

// The kinds of parts.
const (
	Database Kind = iota // an SQLite file, as it stands at one moment
	File                 // one file
	Folder               // all files below a folder, one after another
	Frozen               // a folder whose files are never changed, only made and removed
)

// A Part is some of a gateway's data.
type Part struct {
	Name string // in the archive: one element of a path, another for each part
	Path string // of the file or folder, absolute
	Kind Kind

	// Filter, if it is not nil, copies a file of a Folder instead of copying it as it is. The
	// name is relative to the folder, with slashes.
	Filter func(name string, w io.Writer, r io.Reader) error
}

// An Entry is a file or a folder of an archive.
type Entry struct {
	Name   string `json:"name"`           // with slashes; a folder's ends in one
	Size   int64  `json:"size"`           // bytes
	SHA256 string `json:"sha256"`         // hexadecimal; "" for a folder
	Mode   uint32 `json:"mode,omitempty"` // permissions
}

// Format is the version of archives that this package writes. It reads those up to it.
const Format = 1

// program is what archives name as their maker.
const program = "gateway"

// A Manifest says what is in an archive.
type Manifest struct {
	Program string         `json:"program"`
	Format  int            `json:"format"`
	Version string         `json:"version"` // of the gateway
	Created time.Time      `json:"created"` // the moment of the database
	Schema  map[string]int `json:"schema"`  // version of each package's tables
	Entries []Entry        `json:"entries"`

	// Skipped are the names of what was left out, some of them if that is much.
	Skipped []string `json:"skipped,omitempty"`
}

// Size returns how many bytes the files of the archive have.
func (m *Manifest) Size() (n int64) {
	for _, e := range m.Entries {
		n += e.Size
	}
	return n
}

const (
	manifestName = "manifest.json"
	maxManifest  = 256 << 20 // bytes
	maxEntries   = 1_000_000
	maxSkipped   = 20 // names
)

// The errors that callers tell apart.
var (
	// ErrExists reports an archive, or data, in whose place another would come.
	ErrExists = errors.New("it exists already")
	// ErrForeign reports a file that is not a whole archive of a gateway.
	ErrForeign = errors.New("no whole backup of a gateway")
	// ErrNewer reports an archive of a newer format.
	ErrNewer = errors.New("made by a newer gateway")
)

// foreign returns an [ErrForeign] that says what is wrong.
func foreign(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrForeign}, args...)...)
}

// A contextReader ends when its context does.
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
