// Package document reads and writes the documents of the agent's prompt: Markdown files that people
// may edit by hand, some shared by everybody, some of one scope. The main type is [Documents].
//
// A document that was read is kept in memory until its file changes, so that reading it again costs
// a check of the file's times. Documents that can't be read are mentioned in the prompt, and never
// end a turn. A document is replaced whole, by a rename, and only if it has not changed since the
// writer read it, so that a person's edit is never lost. Symbolic links are not followed: anybody
// who can write their target could write the document.
//
// It owns the files AGENTS.md, SOUL.md, USER.md, TOOLS.md and IDENTITY.md and
// the folder "skills" in the shared folder, the link "memory" in the workspace, and in the folder
// of the scopes ".templates" and, for each scope, its documents and skills.
package document

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gateway/memory"
)

// The names of documents.
const (
	Agents    = "AGENTS.md"    // how the agent works; shared
	Soul      = "SOUL.md"      // how the agent is
	User      = "USER.md"      // who the people are
	Tools     = "TOOLS.md"     // what is to know about tools; shared
	Identity  = "IDENTITY.md"  // the agent's name and role; shared
	Heartbeat = "HEARTBEAT.md" // what to look after from time to time; of a scope
	Memory    = "MEMORY.md"    // what is to remember; of a scope
)

// SkillsFolder is the folder of skills, in the shared folder and in that of a scope.
const SkillsFolder = "skills"

// PromptOrder are the shared documents that the prompt begins with, in its order.
var PromptOrder = []string{Agents, Soul, User, Tools, Identity}

// ErrChanged reports that somebody has changed a document since it was read.
var ErrChanged = errors.New("the document was changed meanwhile")

// ErrExists reports that there is a file already.
var ErrExists = errors.New("the file is there already")

// Options are what [Documents] may be given.
type Options struct {
	Now    func() time.Time // by default the time of the system
	Logger *slog.Logger     // by default nothing is logged

	// MaxTokens is how much of a document is put into the prompt, by default 8,192; a token
	// counts as four bytes.
	MaxTokens int
}

// Documents are those that are shared and those of all scopes. They may be used concurrently.
type Documents struct {
	shared, scopes *os.Root
	opts           Options
	writing        sync.Mutex // held while a document is replaced

	// clock goes on with each View: what was looked at when it was at least at that of the View is
	// fresh enough for it.
	clock atomic.Uint64

	mu    sync.Mutex
	known map[key]cached
	size  int // bytes of their texts
}

// New returns the documents in the shared folder, and those of the scopes that have a folder each
// in another. Either may be nil: then there are none.
func New(shared, scopes *os.Root, o *Options) *Documents {
	d := &Documents{shared: shared, scopes: scopes, known: make(map[key]cached)}
	if o != nil {
		d.opts = *o
	}
	d.opts.Logger = cmp.Or(d.opts.Logger, slog.New(slog.DiscardHandler))
	if d.opts.Now == nil {
		d.opts.Now = time.Now
	}
	d.opts.MaxTokens = cmp.Or(d.opts.MaxTokens, 8_192)
	return d
}

// A Doc is a document as the prompt has it. One that isn't there has neither text nor problem.
type Doc struct {
	Name      string
	Text      string // valid UTF-8 without white space around it; the beginning if it is long
	Hash      string // of the whole file, as [Hash] makes it; "" if it isn't there or can't be read
	Template  bool   // it is as the gateway has made it: nobody has filled it in
	Truncated bool   // Text ends with a notice that says so
	Problem   string // why it can't be read, for the agent and its people; or ""
}

// Prompt returns what the prompt has of the document: its text, or a notice if it can't be read.
// It is "" for an untouched template and for a document that isn't there.
func (d Doc) Prompt() string {
	switch {
	case d.Problem != "":
		return "[" + d.Problem + "]"
	case d.Template:
		return ""
	}
	return d.Text
}

// Shared returns a document that all scopes share.
func (d *Documents) Shared(name string) Doc { return d.doc(key{"", name}, always) }

// In returns the documents of a scope. The scope "" has none.
func (d *Documents) In(s memory.Scope) Space { return Space{d, s} }

// A Space is the documents of one scope.
type Space struct {
	documents *Documents
	scope     memory.Scope
}

// Doc returns a document of the scope.
func (s Space) Doc(name string) Doc {
	if s.scope == "" {
		return Doc{Name: name}
	}
	return s.documents.doc(key{s.scope, name}, always)
}

// Hash returns the hash of a document's content.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
