// Package importer imports the homes of other agents, nanobot (HKUDS/nanobot) and PicoClaw
// (sipeed/picoclaw): documents, memory, conversations and jobs.
//
// [Open] opens such a home. [Source.Move] copies it into a [Target] and reports the result for each
// item; a dry run reports the same and changes nothing. Existing data stays, so a second import of
// the same home adds only new items. Links are never followed. Items that can't be read are left
// out, with the reason.
//
// The formats are those of nanobot 0.1.0 to 0.2 of 2026 (sessions in the home or in the workspace,
// with and without a key; HISTORY.md, history.jsonl and notes of days; jobs in camel or snake case)
// and of PicoClaw 0.2 of 2026 (sessions as JSON lines with a .meta.json, which has the conversation
// of those whose key is a hash; notes of days; accounts in channels or in channel_list).
//
// Limits: a document has 1 MB, a line of a session 64 MB, other JSON files 16 MB. The package owns
// no tables and no files.
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

// A Kind is the program whose home it is.
type Kind string

// The kinds of homes.
const (
	Nanobot  Kind = "nanobot"
	PicoClaw Kind = "picoclaw"
)

// A State says what became, or will become, of an item.
type State string

// The states of an item.
const (
	New    State = "new"    // it is imported
	Same   State = "same"   // it was before
	Kept   State = "kept"   // another one is here, and stays
	Left   State = "left"   // it is left out
	Failed State = "failed" // it should have been imported
)

// An Item is something of the home.
type Item struct {
	Kind  string `json:"kind"` // such as "document" or "job"
	From  string `json:"from"` // in the home, a path or a name
	To    string `json:"to,omitempty"`
	State State  `json:"state"`
	Text  string `json:"text,omitempty"` // how much of it, or why not
}

// A Source is a home that is open.
type Source struct {
	kind      Kind
	root      *os.Root
	workspace string // path of the workspace in root
	config    object // of its config.json; nil if there is none
}

// A Target is where a home is moved to: a gateway that does not run.
type Target struct {
	DB        *store.DB
	Memory    *memory.Memory
	Documents *document.Documents
	Jobs      schedule.Store
	Scope     memory.Scope // gets what is personal
	Owner     Owner        // of Scope; the zero Owner if it is nobody's
	People    []gate.Person
	Location  *time.Location // of times that name no zone
	Now       time.Time

	// History returns the history of the documents of a scope, of the shared ones for "".
	History func(scope memory.Scope) *version.Tree

	// Account returns the account here that takes the place of a platform there.
	Account func(platform string) string
}

// An Owner is the person who gets the data that belongs to no conversation.
type Owner struct {
	Person int64
	Chat   bus.Address // where they write alone; zero if that is not known
	Sender bus.Sender
}

// maxJSON is how large a file of JSON may be that is read as a whole, in bytes.
const maxJSON = 16 << 20

// Open opens a home. The error says what a person can do.
func Open(kind Kind, dir string) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("import: open: %w", err)
	}
	s := &Source{kind: kind, root: root, workspace: "workspace"}
	if info, err := root.Lstat("workspace"); err != nil || !info.IsDir() {
		if s.isFile("AGENTS.md") || s.isFile("SOUL.md") || s.isFile("memory/MEMORY.md") {
			s.workspace = "." // it is a workspace itself
		}
	}
	text, err := s.read("config.json", maxJSON)
	if err == nil {
		s.config, err = parseObject(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("import: %s: %w", s.shown("config.json"), err),
			root.Close())
	}
	if s.config == nil && s.workspace == "workspace" && !s.isFolder("workspace") &&
		!s.isFolder("sessions") {
		return nil, errors.Join(fmt.Errorf("import: %s is no home of %s: it has no config.json, "+
			"no workspace and no sessions", dir, kind), root.Close())
	}
	return s, nil
}

// Close closes the home.
func (s *Source) Close() error { return s.root.Close() }

// shown returns a path of the home for people.
func (s *Source) shown(name string) string { return filepath.Join(s.root.Name(), name) }

// in returns the path of something in the workspace.
func (s *Source) in(name string) string { return path.Join(s.workspace, name) }

// errLink reports a link on the way.
var errLink = errors.New("it is, or lies behind, a link, which is not followed")

// stat returns what is at a path that has no link in it.
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
		return nil, errors.New("it is no file")
	}
	return s.root.Open(filepath.FromSlash(name))
}

// read reads a file that has no more than most bytes.
func (s *Source) read(name string, most int64) ([]byte, error) {
	f, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return text, err
}

// list returns the entries of a folder in order; none if it isn't there.
func (s *Source) list(name string) ([]fs.DirEntry, error) {
	if _, err := s.stat(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return fs.ReadDir(s.root.FS(), name)
}

// A mover is one move.
type mover struct {
	*Source
	Target
	dry      bool
	accounts []account
	items    []Item
	begun    map[memory.Scope]bool // documents of it are moved; "" for the shared ones
}

// Move moves everything, or only says what it would move. The error is one that ended it.
func (s *Source) Move(ctx context.Context, t Target, dry bool) ([]Item, error) {
	accounts, err := s.channelList()
	if err != nil {
		return nil, fmt.Errorf("import: %s: %w", s.shown("config.json"), err)
	}
	m := &mover{Source: s, Target: t, dry: dry, accounts: accounts,
		begun: make(map[memory.Scope]bool)}
	for _, step := range []func(context.Context){
		m.documents, m.history, m.sessions, m.jobs, m.versions,
	} {
		step(ctx)
		if err := ctx.Err(); err != nil {
			return m.items, err
		}
	}
	return m.items, nil
}

// say notes what became of something.
func (m *mover) say(kind, from, to string, state State, text string) {
	m.items = append(m.items, Item{kind, from, to, state, text})
}

// failed notes that an item could not be imported.
func (m *mover) failed(kind, from string, err error) {
	m.say(kind, from, "", Failed, plain(err))
}

// plain returns the end of an error that names the same thing as its item.
func plain(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// Address returns the conversation here that a session key there names: "telegram:42",
// "telegram:-100:topic:7", or PicoClaw's "agent:main:telegram:group:-100". account is as in a
// [Target].
func Address(key string, account func(platform string) string) (bus.Address, error) {
	parts := strings.Split(key, ":")
	if parts[0] == "agent" && len(parts) >= 5 {
		parts = slices.Delete(parts[2:], 1, 2) // the agent's name; direct or group
	}
	if len(parts) < 2 || parts[0] == "agent" || strings.HasPrefix(key, opaque) {
		return bus.Address{}, fmt.Errorf("%q names no conversation: gateway sessions import FILE "+
			"--as SESSION gives it one", key)
	}
	platform, chat := parts[0], parts[1]
	a := bus.Address{Account: account(platform), Chat: chat}
	switch {
	case platform == "cli" && chat == "direct" && len(parts) == 2:
		return bus.Address{Account: account("terminal"), Chat: "main"}, nil
	case !slices.Contains(platforms, platform):
		return a, fmt.Errorf("there is no channel %q here", platform)
	case len(parts) == 4 && (parts[2] == "topic" || parts[2] == "thread"):
		a.Thread = parts[3]
	case len(parts) > 2:
		return a, fmt.Errorf("%q names no conversation", key)
	}
	if at := strings.IndexByte(a.Chat, '/'); at > 0 && a.Thread == "" {
		a.Chat, a.Thread = a.Chat[:at], a.Chat[at+1:]
	}
	if a.Chat == "" || strings.ContainsAny(a.Chat+a.Thread, "/\n\r") {
		return a, fmt.Errorf("%q names no conversation", key)
	}
	return a, nil
}

// platforms are those that both sides know.
var platforms = []string{"telegram", "discord", "whatsapp"}

// isGroup reports whether a conversation is known to be one of several people.
func isGroup(a bus.Address) bool {
	return strings.HasPrefix(a.Chat, "-") || strings.HasSuffix(a.Chat, "@g.us")
}

// person returns the only person who writes in a conversation, nil if that is not known.
func (m *mover) person(a bus.Address) *gate.Person {
	for i, p := range m.People {
		if p.Account == a.Account && p.Sender == a.Chat {
			return &m.People[i]
		}
	}
	return nil
}

// scopeOf returns the scope of a conversation, "" if only its next message will tell.
func (m *mover) scopeOf(a bus.Address) memory.Scope {
	if isGroup(a) {
		return memory.OfChat(a)
	}
	if p := m.person(a); p != nil {
		return memory.OfPerson(p.ID)
	}
	if m.Owner.Chat.Chat != "" && session.KeyOf(m.Owner.Chat) == session.KeyOf(a) {
		return memory.OfPerson(m.Owner.Person)
	}
	return ""
}
