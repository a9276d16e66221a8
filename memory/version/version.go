// Package version keeps the history of small folders of text files, such as the documents of a
// memory: who changed what, why, and how to undo just that. [Store] holds the histories, a [Tree]
// is the history of one folder.
//
// The histories are Git repositories, which the git program writes, in a folder of their own that
// is not the one whose history they are: no program that can write the documents can write a
// configuration or a hook. Git is used as a store of snapshots only: files are read, compared,
// merged and written here, so that no filter, attribute or setting has a say. Where there is no
// git, a plain folder of numbered versions does the same; what one of them has written stays
// readable when the other takes over.
//
// A file of up to 1 MB is kept, links and other special files are not. The package owns
// DIR/NAME.git, DIR/NAME.versions and DIR/NAME.lock.
package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options are what a [Store] may be given.
type Options struct {
	// Git is the path of the git program; by default the one of the system's search path.
	// "-" stands for none.
	Git string

	Now    func() time.Time // by default the time of the system
	Logger *slog.Logger     // by default nothing is logged
}

// A Store holds histories by name. It may be used concurrently, by several processes as well.
type Store struct {
	dir  string
	opts Options
}

// New returns the store of the histories in dir, which need not be there.
func New(dir string, o *Options) *Store {
	s := &Store{dir: dir}
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

	// ID names the change, if it isn't "": one with an ID that the history has is not made again,
	// so that who was killed can begin anew. Letters, digits and "._:/+@-", at most 200.
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

// The errors of those who name a version.
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

// A Conflict is a place where two texts differ from their base and from each other.
type Conflict struct {
	Line               int // where it begins in ours, from 1
	Base, Ours, Theirs string
}

var errMissing = errors.New("version: not there yet")

// Tree returns the history with a name, such as "person-3", of those files in a folder that the
// function tells: it gets paths with slashes, relative to the folder. Nil stands for all. All
// trees of one name share the history.
func (s *Store) Tree(name, folder string, files func(rel string) bool) *Tree {
	return &Tree{store: s, name: name, folder: folder, files: files}
}

// A Tree is the history of one folder.
type Tree struct {
	store        *Store
	name, folder string
	files        func(rel string) bool
}

// Kind returns what keeps new versions: "git" or "plain".
func (t *Tree) Kind() string { return "plain" }

// Commit records the files as they are. It returns the zero Version if they are as in the newest
// version, or if the change was made before.
func (t *Tree) Commit(ctx context.Context, c Change) (Version, error) {
	return Version{}, errMissing
}

// Log returns the newest n versions, the newest first; all if n is 0.
func (t *Tree) Log(ctx context.Context, n int) ([]Version, error) { return nil, errMissing }

// Show returns what a version is, why it was made and what it changed, as text.
func (t *Tree) Show(ctx context.Context, id string) (string, error) { return "", errMissing }

// Diff returns what a version changed, as a unified diff.
func (t *Tree) Diff(ctx context.Context, id string) (string, error) { return "", errMissing }

// Undo takes back what a version changed, keeps what was changed since, and records that. It
// returns the zero Version if there is nothing left of the change. If lines were changed again
// since, nothing is done and the error is a [*ConflictError].
func (t *Tree) Undo(ctx context.Context, id string, c Change) (Version, error) {
	return Version{}, errMissing
}

// Has reports whether the history has a change with an ID.
func (t *Tree) Has(ctx context.Context, change string) (bool, error) { return false, errMissing }

// Remove deletes the whole history.
func (t *Tree) Remove() error { return errMissing }

// Merge3 returns base with the changes of both texts, line by line. Where they conflict the
// result has the lines of ours.
func Merge3(base, ours, theirs string) (string, []Conflict) { return ours, nil }
