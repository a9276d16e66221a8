// Package importer imports the homes of other agents, nanobot (HKUDS/nanobot), PicoClaw
// (sipeed/picoclaw) and OpenClaw (openclaw/openclaw): documents, memory, conversations and jobs.
//
// [Open] opens such a home. [Source.Import] copies it into a [Target] and reports the result of
// each item. A dry run reports the same and changes nothing. Existing data stays, so a second
// import of the same home adds only new items. Links are never followed. Items that can't be read
// are left out, with the reason.
//
// The formats are those of nanobot 0.1.0 to 0.2 of 2026 (sessions in the home or in the
// workspace, with and without a key; HISTORY.md, history.jsonl and daily notes; jobs in camel or
// snake case) and of PicoClaw 0.2 of 2026 (sessions as JSON lines with a .meta.json, which names
// the conversation if the key is a hash; daily notes; accounts in channels or in channel_list), and
// of OpenClaw up to September 2026 (sessions as trees of JSON lines with an index, or since July in
// a SQLite database for each agent; archives of ended sessions, as lines or compressed; settings in
// JSON5 that include other files).
//
// Limits: a document has at most 1 MB, a line of a session 64 MB, other JSON files 16 MB, a
// database 8 GB. The package owns no tables and no files. While it reads a database it has a copy
// in a temporary folder.
package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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
	Scope     memory.Scope // gets the personal data
	Owner     Owner        // owner of Scope; zero if unknown
	People    []gate.Person
	Location  *time.Location // time zone of times without a zone
	Now       time.Time

	// History returns the versions of the documents of a scope; "" is the scope of shared
	// documents.
	History func(scope memory.Scope) *version.Tree

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

// Open opens a home. Its error tells people what to do.
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

// A run is one import.
type run struct {
	*Source
	Target
	dry      bool
	accounts []account
	items    []Item
	begun    map[memory.Scope]bool // scopes with imported documents; "" for shared ones
	filled   map[session.Key]bool  // conversations that this import has written
}

// Import imports everything, or with dry only reports what it would import. An error means that the
// import was not completed; errors of single items are in the list.
func (s *Source) Import(ctx context.Context, t Target, dry bool) ([]Item, error) {
	accounts, err := s.channelList()
	if err != nil {
		return nil, fmt.Errorf("import: %s: %w", s.shown("config.json"), err)
	}
	m := &run{Source: s, Target: t, dry: dry, accounts: accounts,
		items: slices.Clone(s.settings), begun: make(map[memory.Scope]bool),
		filled: make(map[session.Key]bool)}
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

// report adds the result of an item.
func (m *run) report(kind, from, to string, state State, text string) {
	m.items = append(m.items, Item{kind, from, to, state, text})
}

// A skipError is the reason why an item is left out.
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

// Address converts a session key of the other agent to an address of this gateway. Keys are, for
// example, "telegram:42", "telegram:-100:topic:7", or "agent:main:telegram:group:-100" of
// PicoClaw. account is like [Target].Account.
func Address(key string, account func(platform string) string) (bus.Address, error) {
	parts := strings.Split(key, ":")
	if parts[0] == "agent" && len(parts) >= 5 {
		parts = slices.Delete(parts[2:], 1, 2) // removes the agent's name and "direct" or "group"
	}
	if len(parts) < 2 || parts[0] == "agent" || strings.HasPrefix(key, opaque) {
		return bus.Address{}, noChat(key)
	}
	platform, chat := parts[0], parts[1]
	a := bus.Address{Account: account(platform), Chat: chat}
	switch {
	case platform == "cli" && chat == "direct" && len(parts) == 2:
		return bus.Address{Account: account("terminal"), Chat: "main"}, nil
	case !slices.Contains(platforms, platform):
		return a, newSkipError("the gateway has no channel %q", platform)
	case len(parts) == 4 && (parts[2] == "topic" || parts[2] == "thread"):
		a.Thread = parts[3]
	case len(parts) > 2:
		return a, noChat(key)
	}
	if at := strings.IndexByte(a.Chat, '/'); at > 0 && a.Thread == "" {
		a.Chat, a.Thread = a.Chat[:at], a.Chat[at+1:]
	}
	if a.Chat == "" || strings.ContainsAny(a.Chat+a.Thread, "/\n\r") {
		return a, noChat(key)
	}
	return a, nil
}

func noChat(key string) error {
	return newSkipError("%q is not the key of a chat: choose a conversation with --as", key)
}

// platforms lists the platforms that both the other agents and this gateway support.
var platforms = []string{"telegram", "discord", "whatsapp"}

// isGroup reports whether an address is known to be a group.
func isGroup(a bus.Address) bool {
	return strings.HasPrefix(a.Chat, "-") || strings.HasSuffix(a.Chat, "@g.us")
}

// person returns the person of a direct chat, or nil if unknown.
func (m *run) person(a bus.Address) *gate.Person {
	for i, p := range m.People {
		if p.Account == a.Account && p.Sender == a.Chat {
			return &m.People[i]
		}
	}
	return nil
}

// scopeOf returns the scope of a conversation. It returns "" if only the next message there can
// tell.
func (m *run) scopeOf(a bus.Address) memory.Scope {
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

// An account is an entry of PicoClaw's channel_list. A platform can have several.
type account struct{ name, platform string }

// channelList returns the accounts in channel_list.
func (s *Source) channelList() (accounts []account, err error) {
	all, err := s.config.table("channel_list")
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c, err := all.table(name)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, account{name, platformOf(cmp.Or(c.text("type"), name))})
	}
	return accounts, nil
}

// platformOf returns the platform of a PicoClaw channel type. WhatsApp has two types.
func platformOf(kind string) string {
	if kind == "whatsapp_native" {
		return "whatsapp"
	}
	return kind
}

// address is like [Address], but a key may also name an account of channel_list.
func (m *run) address(key string) (bus.Address, error) {
	parts, at := strings.Split(key, ":"), 0
	if parts[0] == "agent" && len(parts) >= 5 {
		at = 2
	}
	here, alike := m.Account, 0
	for _, a := range m.accounts {
		if !strings.EqualFold(a.name, parts[at]) { // PicoClaw writes session keys in lower case
			continue
		}
		for _, b := range m.accounts {
			if b.platform == a.platform {
				alike++
			}
		}
		if parts[at] = a.platform; alike > 1 { // several accounts on a platform
			here = func(string) string { return m.Account(a.name) }
		}
		return Address(strings.Join(parts, ":"), here)
	}
	parts[at] = platformOf(parts[at])
	return Address(strings.Join(parts, ":"), here)
}

// opaque is the prefix of the keys of PicoClaw's newer sessions. The rest of such a key is a
// hash.
const opaque = "sk_v1_"

// A foreignScope describes, in a .meta.json, the conversation of a session with an opaque key.
type foreignScope struct {
	Version    int               `json:"version"`
	Channel    string            `json:"channel"`
	Dimensions []string          `json:"dimensions"` // properties that separate sessions
	Values     map[string]string `json:"values"`     // by dimension
}

// key returns the key of the conversation, or an error with the reason why there is none.
func (s *foreignScope) key() (string, error) {
	kind, chat, ok := strings.Cut(s.Values["chat"], ":")
	switch {
	case s.Version != 1:
		return "", newSkipError("its scope has the version %d, and only 1 is known", s.Version)
	case !slices.Contains(s.Dimensions, "chat") || !ok || chat == "" || strings.Contains(chat, ":"):
		return "", skipError("it may hold several conversations, and does not say which")
	case slices.Contains(s.Dimensions, "sender") && kind != "direct":
		return "", skipError("it holds what only one member of a group has written")
	}
	key := s.Channel + ":" + chat
	_, topic, _ := strings.Cut(s.Values["topic"], ":")
	if slices.Contains(s.Dimensions, "topic") && topic != "" && !strings.Contains(chat, "/") {
		key += "/" + topic
	}
	return key, nil
}

// place returns the address to which a session belongs.
func (m *run) place(f ForeignHeader, name string) (bus.Address, error) {
	key := cmp.Or(f.Key, KeyOfFile(name))
	if to := m.Chosen[key]; to.Chat != "" {
		return to, nil
	}
	if f.scope != nil && strings.HasPrefix(key, opaque) {
		var err error
		if key, err = f.scope.key(); err != nil {
			return bus.Address{}, err
		}
	}
	return m.address(key)
}
