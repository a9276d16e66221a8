// Package document reads and writes the documents that the agent's prompt is made of: Markdown
// files that people edit by hand, some shared by everybody, some of one scope. [Documents] holds
// them.
//
// A document that was read is kept in memory until its file changes, so that reading it again
// costs a look at the file's times. What can't be read is told of in the prompt, and never ends a
// turn. A document is replaced whole, by a rename, and only if it still is what the writer has
// read: what a person wrote meanwhile stays.
//
// It owns the files AGENTS.md, SOUL.md, USER.md, TOOLS.md, IDENTITY.md and HEARTBEAT.md in the
// workspace, the link "memory" there, and in the folder of the scopes ".templates" and, for each
// scope, its documents and skills.
package document

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"sync"
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
	Heartbeat = "HEARTBEAT.md" // what to look after from time to time
	Memory    = "MEMORY.md"    // what is to remember; of a scope
)

// PromptOrder are the documents that the workspace may have and the prompt begins with, in its
// order.
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

// Documents are those of the workspace and of all scopes. They may be used concurrently.
type Documents struct {
	workspace, scopes *os.Root
	opts              Options

	mu    sync.Mutex
	known map[string]cached
}

type cached struct{ doc Doc }

// New returns the documents of a workspace, and of the scopes that have a folder each in another.
// Either may be nil: then there are none.
func New(workspace, scopes *os.Root, o *Options) *Documents {
	d := &Documents{workspace: workspace, scopes: scopes}
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

// A Doc is a document as the prompt has it. One that isn't there has no text.
type Doc struct {
	Name      string
	Text      string // valid UTF-8 without white space around it; the beginning if it is long
	Hash      string // of the whole file, as [Hash] makes it; "" if it isn't there or can't be read
	Template  bool   // nobody has changed it since the gateway made it
	Truncated bool   // Text ends with a notice that says so
	Problem   string // why it can't be read, for the agent and its people; or ""
}

// Prompt returns what the prompt says of the document, "" for nothing.
func (d Doc) Prompt() string { return d.Text }

// Shared returns a document that all scopes share.
func (d *Documents) Shared(name string) Doc { return Doc{Name: name} }

// In returns the documents of a scope.
func (d *Documents) In(s memory.Scope) Space { return Space{d, s} }

// A Space is the documents of one scope.
type Space struct {
	documents *Documents
	scope     memory.Scope
}

// Doc returns a document of the scope.
func (s Space) Doc(name string) Doc { return Doc{Name: name} }

var errMissing = errors.New("document: not there yet")

// Read returns all of a document as it is on the disk and its hash; "" for both if it isn't
// there. The scope "" stands for the shared documents. name is a path with slashes.
func (d *Documents) Read(s memory.Scope, name string) (text, hash string, err error) {
	return "", "", errMissing
}

// Save replaces a document, if its hash still is base, else the error is [ErrChanged]. A base of
// "" means that there is none yet. The scope "" stands for the shared documents.
func (d *Documents) Save(s memory.Scope, name, text, base string) error { return errMissing }

// Create writes a file that isn't there yet, else the error is [ErrExists].
func (d *Documents) Create(s memory.Scope, name, text string) error { return errMissing }

// WriteTemplates writes the shared documents that are not there, for people to fill in, each once
// only: one that was deleted isn't written again.
func (d *Documents) WriteTemplates() error { return errMissing }

// Link makes the link "memory" in the workspace, by which people find the scopes' folders. If
// something else has that name, or links can't be made, there is none.
func (d *Documents) Link() error { return errMissing }

// Hash returns the hash of a document's content.
func Hash(text string) string { return text }
