// Package version keeps the history of small folders of text files, such as the documents
// of a memory: who changed what and why. It can undo a single change. A [Store] holds the
// histories, a [Tree] is the history of one folder.
//
// A version is a set of rows with the whole text of each file that changed. This package
// compares and merges files line by line. It keeps regular files of up to 1 MB, and
// ignores links and other special files.
//
// Tables: versions, version_files. Remove also deletes the files that earlier gateways
// kept as NAME.git, NAME.versions and NAME.lock in [Options].Before.
package version

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"gateway/store"
	"gateway/store/plaintext"
)

// Options are the optional settings of [New].
type Options struct {
	// Before is a folder with the histories of an earlier gateway, which kept them as Git
	// repositories or as numbered versions. They are never read, and are deleted when a
	// history is removed.
	Before string

	Now    func() time.Time // by default the time of the system
	Logger *slog.Logger     // by default nothing is logged
}

// A Store holds histories by name. It is safe for concurrent use, also by several
// processes.
type Store struct {
	db   *store.DB
	opts Options
}

// New returns the store of the histories in db, which must have the tables of [Migration].
func New(db *store.DB, o *Options) *Store {
	s := &Store{db: db, opts: *cmp.Or(o, new(Options))}
	s.opts.Logger = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler))
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	return s
}

// A Change names the author of a change and its reason.
type Change struct {
	Author string // "Dream", "the agent", "a person"
	Reason string // one or more sentences

	// ID identifies the change, unless it is "". A change with an ID that the history already
	// has is not recorded again, so that a caller can safely retry after a kill. An ID has at
	// most 200 letters, digits and "._:/+@-".
	ID string
}

// A Version is the state of the files after a change. The zero Version means no version.
type Version struct {
	ID     string    // hexadecimal digits; the first six are enough to find it
	Time   time.Time // to the second
	Author string
	Reason string
	Change string // the ID of the change, or ""
}

// Errors of functions that take the ID of a version.
var (
	ErrUnknown   = errors.New("there is no such version")
	ErrAmbiguous = errors.New("more than one version begins like that; give more of its name")
)

// A FileConflict is a file in which a change can't be undone.
type FileConflict struct {
	Name      string
	Conflicts []Conflict
}

// A ConflictError means that lines of the change were changed again since.
type ConflictError struct {
	Version string
	Files   []FileConflict
}

// Error implements error.
func (e *ConflictError) Error() string {
	var at []string
	for _, f := range e.Files {
		for _, c := range f.Conflicts {
			at = append(at, fmt.Sprintf("%s line %d", f.Name, c.Line))
		}
	}
	return "version: undo " + e.Version + ": changed again since: " + strings.Join(at, ", ")
}

// A Tree is the history of one folder.
type Tree struct {
	store        *Store
	name, folder string
	files        func(rel string) bool
}

// maxName is the greatest length of the name of a history and of the ID of a change, in
// bytes. It is checked separately, because a regular expression with that repetition count
// would need much memory.
const maxName = 200

// plainName matches the names of histories, which also have at most maxName bytes.
var plainName = plaintext.Pattern(`^[A-Za-z0-9@_+-][A-Za-z0-9@._+-]*$`)

// Tree returns the history with a name, such as "person-3", of a folder. The function
// files chooses the files whose history is kept; nil chooses all. It gets slash-separated
// paths relative to the folder; the path of a folder ends in a slash, and nothing below a
// refused folder is kept. All trees with the same name share one history. Tree panics
// unless the name consists of 1 to 200 letters, digits and "@._+-".
func (s *Store) Tree(name, folder string, files func(rel string) bool) *Tree {
	if len(name) > maxName || !plainName().MatchString(name) {
		panic(fmt.Sprintf("version: %q can't name a history", name))
	}
	return &Tree{store: s, name: name, folder: folder, files: files}
}
