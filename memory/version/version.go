// Package version keeps the history of small folders of text files, such as the documents of a
// memory: who changed what, why, and how to undo just that. [Store] holds the histories, a [Tree]
// is the history of one folder.
//
// The histories are Git repositories, which the git program writes, in a folder of their own that
// is not the one whose history they are: no program that can write the documents can write a
// configuration or a hook. Git is used as a store of snapshots only: files are read, compared,
// merged and written here, so that no filter, attribute or setting has a say. Where there is no
// git, a plain folder of numbered versions does the same, and stays readable when git comes; as
// long as git is missing, what it has written can't be read. A repository that is damaged beyond
// what a kill can leave is put aside, and a new one begun.
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
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// git returns the path of the git program, or "".
func (s *Store) git() string {
	switch s.opts.Git {
	case "-":
		return ""
	case "":
		path, err := exec.LookPath("git")
		if err != nil {
			return ""
		}
		return path
	}
	return s.opts.Git
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

// A Tree is the history of one folder.
type Tree struct {
	store        *Store
	name, folder string
	files        func(rel string) bool
}

// maxName is the length of the longest name of a history and of a change, in bytes. Expressions
// that count so far themselves would take more memory than all others.
const maxName = 200

// plainName is what a history may be called, in maxName bytes: no path leads out of the store.
var plainName = regexp.MustCompile(`^[A-Za-z0-9@_+-][A-Za-z0-9@._+-]*$`)

// Tree returns the history with a name, such as "person-3", of those files in a folder that the
// function tells. It gets paths with slashes, relative to the folder; those of folders end in a
// slash, and nothing is kept of a folder that it doesn't tell. Nil stands for all. All trees of
// one name share the history. It panics if the name can't be that of a file.
func (s *Store) Tree(name, folder string, files func(rel string) bool) *Tree {
	if len(name) > maxName || !plainName.MatchString(name) {
		panic(fmt.Sprintf("version: %q can't name a history", name))
	}
	return &Tree{store: s, name: name, folder: folder, files: files}
}

func (t *Tree) path(ending string) string { return filepath.Join(t.store.dir, t.name+ending) }

// Kind returns what keeps new versions: "git" or "plain".
func (t *Tree) Kind() string {
	if t.store.git() == "" {
		return "plain"
	}
	return "git"
}

// A backend keeps versions, each a whole snapshot.
type backend interface {
	// prepare heals what a kill has left. The lock is held.
	prepare(ctx context.Context) error

	// ids returns the names of all versions, the newest first. It need not have any.
	ids(ctx context.Context) ([]string, error)

	// log returns n versions from the one named on, the newest first; all if n is 0.
	log(ctx context.Context, from string, n int) ([]Version, error)

	// find returns the version with the ID of a change, or the zero Version.
	find(ctx context.Context, change string) (Version, error)

	files(ctx context.Context, id string) (snapshot, error)

	// commit adds a version that follows the newest, and returns it with its ID. The lock is held.
	commit(ctx context.Context, s snapshot, v Version) (Version, error)
}

// writer returns the back-end for new versions.
func (t *Tree) writer(lock *os.File) backend {
	if path := t.store.git(); path != "" {
		return &gitStore{git: path, dir: t.path(".git"), lock: lock,
			logger: t.store.opts.Logger, now: t.store.opts.Now}
	}
	return &plainStore{dir: t.path(".versions")}
}

// readers returns the back-ends that may have versions, that of new ones first.
func (t *Tree) readers() []backend {
	list := []backend{t.writer(nil)}
	if t.Kind() == "git" {
		if _, err := os.Stat(t.path(".versions")); err == nil {
			list = append(list, &plainStore{dir: t.path(".versions")})
		}
	}
	return list
}
