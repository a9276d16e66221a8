// Package version keeps the history of small folders of text files, such as the documents of a
// memory: who changed what and why, and how to undo one change. [Store] holds the histories, a
// [Tree] is the history of one folder.
//
// A version is a set of rows with the whole text of each file that changed. Files are compared and
// merged line by line here. A file of up to 1 MB is kept, links and other special files are not.
//
// Tables: versions, version_files. Remove also deletes the files that earlier gateways kept as
// NAME.git, NAME.versions and NAME.lock in [Options].Before.
package version

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"gateway/store"
)

// Options are what a [Store] may be given.
type Options struct {
	// Before is a folder with histories of an earlier gateway, which kept them as repositories of
	// Git or as numbered versions. They are never read, and go when a history is removed.
	Before string

	Now    func() time.Time // by default the time of the system
	Logger *slog.Logger     // by default nothing is logged
}

// A Store holds histories by name. It may be used concurrently, by several processes as well.
type Store struct {
	db   *store.DB
	opts Options
}

// New returns the store of the histories in db, which has the tables of [Migration].
func New(db *store.DB, o *Options) *Store {
	s := &Store{db: db}
	if o != nil {
		s.opts = *o
	}
	s.opts.Logger = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler))
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	return s
}

// A Change says who changes something and why.
type Change struct {
	Author string // "Dream", "the agent", "a person"
	Reason string // a sentence or more

	// ID names the change, if it isn't "": a change with an ID that the history has is not made
	// again, so that a caller that was killed can begin anew. It has letters, digits and
	// "._:/+@-", at most 200.
	ID string
}

// A Version is the state of the files after a change. The zero Version is none.
type Version struct {
	ID     string    // hexadecimal digits; the first six and more of them name it as well
	Time   time.Time // to the second
	Author string
	Reason string
	Change string // the ID of the change, or ""
}

// The errors about the name of a version.
var (
	ErrUnknown   = errors.New("there is no such version")
	ErrAmbiguous = errors.New("more than one version begins like that; give more of its name")
)

// A FileConflict is a file that a change can't be undone in.
type FileConflict struct {
	Name      string
	Conflicts []Conflict
}

// A ConflictError reports that lines which a change has made were changed again since.
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

// maxName is the length of the longest name of a history and of a change, in bytes. Expressions
// that count so far themselves would take more memory than all others.
const maxName = 200

// plainName is what a history may be called, in maxName bytes.
var plainName = regexp.MustCompile(`^[A-Za-z0-9@_+-][A-Za-z0-9@._+-]*$`)

// Tree returns the history with a name, such as "person-3", of those files in a folder that the
// function chooses. The function gets paths with slashes, relative to the folder; those of folders
// end in a slash, and nothing is kept of a folder that it refuses. Nil chooses all files. All trees
// of one name share the history. Tree panics if the name is not 1 to 200 letters, digits and
// "@._+-".
func (s *Store) Tree(name, folder string, files func(rel string) bool) *Tree {
	if len(name) > maxName || !plainName.MatchString(name) {
		panic(fmt.Sprintf("version: %q can't name a history", name))
	}
	return &Tree{store: s, name: name, folder: folder, files: files}
}
