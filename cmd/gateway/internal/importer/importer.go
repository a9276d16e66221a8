// Package importer imports the homes of other agents, nanobot (HKUDS/nanobot), PicoClaw
// (sipeed/picoclaw) and OpenClaw (openclaw/openclaw): documents, memory, conversations and jobs.
//
// [Open] opens such a home. [Source.Import] copies it into a [Target] and reports the result of
// each item. A dry run reports the same and changes nothing. Existing data stays, so a second
// import of the same home adds only new items. Links are never followed. Items that can't be read
// are left out, with the reason.
//
// The formats are those of nanobot 0.1.0 to August 2026 (sessions in the home, in the workspace, or
// in a folder for each workspace, with and without a key; HISTORY.md, history.jsonl and daily
// notes; jobs in camel or snake case) and of PicoClaw 0.2 of 2026 (sessions as JSON lines with a
// .meta.json, which names the conversation if the key is a hash; daily notes; accounts in channels
// or in channel_list), and of OpenClaw up to September 2026 (sessions as trees of JSON lines with
// an index, or since July in a SQLite database for each agent; archives of ended sessions, as lines
// or compressed; settings in JSON5 that include other files).
//
// Limits: a document has at most 1 MB, a line of a session 64 MB, other JSON files 16 MB, a
// database 8 GB. The package owns no tables and no files. While it reads a database it has a copy
// in a temporary folder.
package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/session"
	"gateway/store"
)

// A Kind is the program to which a home belongs.
type Kind string

// The kinds of homes.
const (
	Nanobot  Kind = "nanobot"
	PicoClaw Kind = "picoclaw"
	OpenClaw Kind = "openclaw"
)

// A State is the result of an item, or in a dry run the expected result.
type State string

// The states of an item.
const (
	New    State = "new"    // imported
	Same   State = "same"   // the same item already exists
	Kept   State = "kept"   // a different item exists and stays
	Left   State = "left"   // left out; the text has the reason
	Failed State = "failed" // not imported because of an error
)

// An Item is one thing in the imported home.
type Item struct {
	Kind  string `json:"kind"` // such as "document" or "job"
	From  string `json:"from"` // path or name in the imported home
	To    string `json:"to,omitempty"`
	State State  `json:"state"`
	Text  string `json:"text,omitempty"` // amount of data, or the reason
}

// A Source is an open home of another agent.
type Source struct {
	kind      Kind
	root      *os.Root
	workspace string // path of the workspace below root
	config    object // the parsed settings; nil if there are none
	settings  []Item // results about the settings, of OpenClaw
}

// A Target is the gateway that gets the data. It must not be running.
type Target struct {
	DB        *store.DB
	Memory    *memory.Memory
	Documents *document.Documents
	Jobs      schedule.Store
	Scope     memory.Scope   // gets the personal data
	Location  *time.Location // time zone of times without a zone
	Now       time.Time
	Directory

	// History returns the versions of the documents of a scope; "" is the scope of shared
	// documents.
	History func(scope memory.Scope) *version.Tree
}

// A Directory says which people and accounts this gateway has, and where the conversations of the
// imported home belong.
type Directory struct {
	Owner  Owner // owner of Target.Scope; zero if unknown
	People []gate.Person

	// Account returns the account of this gateway for a platform of the imported home.
	Account func(platform string) string

	// Chosen has the conversations that people have chosen, by the key or the id of the session.
	Chosen map[string]bus.Address

	// Lookup returns the id of a direct chat of an account, by the id that the platform gives the
	// person, or by their phone number; "" if it is not known. It may be nil.
	Lookup func(ctx context.Context, account, person string) (chat string, err error)
}

// An Owner is the person who gets the data that belongs to no conversation.
type Owner struct {
	Person int64
	Chat   bus.Address // direct chat; zero if unknown
	Sender bus.Sender
}

// settingsFile is the file with the settings of OpenClaw.
const settingsFile = "openclaw.json"

// maxJSON is the maximum size of a JSON file that is read as a whole, in bytes.
const maxJSON = 16 << 20

// Open opens a home. Its error tells people what to do. Settings that can't be parsed are an error,
// except those of OpenClaw, which then are an item of the result.
func Open(kind Kind, dir string) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("import: open: %w", err)
	}
	s := &Source{kind: kind, root: root, workspace: "workspace"}
	if info, err := root.Lstat("workspace"); err != nil || !info.IsDir() {
		if s.isFile("AGENTS.md") || s.isFile("SOUL.md") || s.isFile("memory/MEMORY.md") {
			s.workspace = "." // the folder is a workspace without a home
		}
	}
	file := "config.json"
	if kind == OpenClaw {
		file = settingsFile
		s.readSettings()
	} else {
		text, err := s.read(file, maxJSON)
		if err == nil {
			s.config, err = parseObject(text)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("import: %s: %w", s.shown(file), err),
				root.Close())
		}
	}
	if s.config == nil && s.workspace == "workspace" && !s.isFolder("workspace") &&
		!s.isFolder("sessions") && !s.isFolder("agents") {
		return nil, errors.Join(fmt.Errorf("import: %s is not a home of %s: it has no %s, "+
			"no workspace and no sessions", dir, kind, file), root.Close())
	}
	return s, nil
}

// Close closes the home.
func (s *Source) Close() error { return s.root.Close() }

// shown returns the path of a file in the home as people see it.
func (s *Source) shown(name string) string { return filepath.Join(s.root.Name(), name) }

// in returns the path of a file in the workspace.
func (s *Source) in(name string) string { return path.Join(s.workspace, name) }

// errLink means that a path contains a link.
var errLink = errors.New("it is, or lies behind, a link, which the import does not follow")

// stat returns the FileInfo of a path, or errLink if the path contains a link.
func (s *Source) stat(name string) (info fs.FileInfo, err error) {
	done := ""
	for element := range strings.SplitSeq(path.Clean(name), "/") {
		done = path.Join(done, element)
		if info, err = s.root.Lstat(filepath.FromSlash(done)); err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil, errLink
		}
	}
	return info, nil
}

func (s *Source) isFile(name string) bool {
	info, err := s.stat(name)
	return err == nil && info.Mode().IsRegular()
}

func (s *Source) isFolder(name string) bool {
	info, err := s.stat(name)
	return err == nil && info.IsDir()
}

// open opens a regular file.
func (s *Source) open(name string) (*os.File, error) {
	info, err := s.stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	return s.root.Open(filepath.FromSlash(name))
}

// read reads a file of at most most bytes.
func (s *Source) read(name string, most int64) ([]byte, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One byte more than allowed tells whether the file is too large.
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return text, err
}

// list returns the sorted entries of a folder, or none if the folder does not exist.
func (s *Source) list(name string) ([]fs.DirEntry, error) {
	if _, err := s.stat(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return fs.ReadDir(s.root.FS(), name)
}

// A run is what the steps of an import share: the home, the gateway and the results.
type run struct {
	*Source
	Target
	dry   bool
	book  addressBook
	items []Item
}

// Import imports everything, or with dry only reports what it would import. An error means that the
// import was not completed; errors of single items are in the list.
func (s *Source) Import(ctx context.Context, t Target, dry bool) ([]Item, error) {
	accounts, err := s.channelList()
	if err != nil {
		return nil, fmt.Errorf("import: %s: %w", s.shown("config.json"), err)
	}
	m := &run{Source: s, Target: t, dry: dry, book: addressBook{t.Directory, accounts},
		items: slices.Clone(s.settings)}
	d := documents{m, make(map[memory.Scope]bool)}
	// The history comes before the conversations and jobs, and the versions come last, when all
	// documents are written.
	for _, step := range []func(context.Context){
		d.importAll, history{m}.importAll,
		conversations{m, make(map[session.Key]bool)}.importAll,
		jobs{m, make(map[jobID]bool)}.importAll, d.commit,
	} {
		step(ctx)
		if err := ctx.Err(); err != nil {
			return m.items, err
		}
	}
	return m.items, nil
}

// report adds the result of an item.
func (m *run) report(kind, from, to string, state State, text string) {
	m.items = append(m.items, Item{kind, from, to, state, text})
}

// A skipError is the reason why an item is left out. Such an item is in state Left. Every other
// error makes it Failed, and then the command fails, too.
type skipError string

func (e skipError) Error() string { return string(e) }

func newSkipError(format string, args ...any) error {
	return skipError(fmt.Sprintf(format, args...))
}

// failed adds an item that was left out or could not be imported.
func (m *run) failed(kind, from string, err error) {
	state := Failed
	if _, left := errors.AsType[skipError](err); left {
		state = Left
	}
	m.report(kind, from, "", state, plain(err))
}

// plain returns the text of err without the path, which the item already contains.
func plain(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}
