// Package backup writes all that a gateway knows into one file while it runs, and puts it back.
//
// [Write] makes the archive, [Restore] unpacks it; what the parts of a gateway's data are, and
// where they lie, the caller says by a list of [Part].
//
// The order of copying decides whether the copy is of use. The database comes first, as it stands
// at one moment; everything else is copied after it. So whatever the database refers to is in the
// archive, unless it was removed in between, which every reader of files expects anyway. What came
// after that moment is surplus: files that no row knows are swept with their age, versions of
// documents have names by which work that is done again finds itself done, and lines of a history
// that the database does not have are left out by the filter of their part. Files first would
// be the other way round: rows that speak of files which are not there.
//
// An archive is a gzipped tar. Its first file, manifest.json, names the others with their sizes and
// SHA-256 sums. To know those before anything is written, all is copied into a folder beside the
// archive; files that never change are linked instead, where the file system can.
//
// Limits: links, sockets and devices are left out, and in folders what this user may not read or
// has a name that is no UTF-8; an archive has at most a million files. The
// package owns no tables. Files: the archive, and .gateway-backup-* and .gateway-restore-* beside
// what is written while it is written; [Write] and [Restore] remove those that a kill has left.
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
	// ErrForeign reports a file that is no whole archive of a gateway.
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
