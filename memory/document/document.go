// Package document reads and writes the documents of the agent's prompt: Markdown files that people
// may edit by hand. Some are shared by all scopes, some belong to one scope. The main type is
// [Documents].
//
// A document is cached until its file changes, so that reading it again costs only a check of the
// file's times. If a document can't be read, the prompt says so, and the turn continues. A document
// is replaced as a whole, by a rename, and only if it has not changed since the writer read it, so
// that no edit of a person is lost. Symbolic links are not followed, because anybody who can write
// the target could then write the document.
//
// The package owns the files AGENTS.md, SOUL.md, USER.md, TOOLS.md and IDENTITY.md and the folder
// "skills" in the shared folder, the link "memory" in the workspace, and in the folder of the
// scopes ".templates" and, for each scope, its documents and skills.
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
	Soul      = "SOUL.md"      // the agent's character
	User      = "USER.md"      // who the people are
	Tools     = "TOOLS.md"     // hints about tools; shared
	Identity  = "IDENTITY.md"  // the agent's name and role; shared
	Heartbeat = "HEARTBEAT.md" // what to check regularly; per scope
	Memory    = "MEMORY.md"    // what to remember; per scope
)

// SkillsFolder is the name of the folder of skills, both in the shared folder and in the
// folder of a scope.
const SkillsFolder = "skills"

// PromptOrder lists the shared documents at the beginning of the prompt, in order.
var PromptOrder = []string{Agents, Soul, User, Tools, Identity}

// ErrChanged means that a document was changed since it was read.
var ErrChanged = errors.New("the document was changed meanwhile")

// ErrExists means that the file exists already.
var ErrExists = errors.New("the file is there already")

// ErrUnfit means that a file can't be a document: its text is too long or not UTF-8, or it is not a
// regular file.
var ErrUnfit = errors.New("the file can't be a document")

// An unfitError says why a file can't be a document. It wraps [ErrUnfit].
type unfitError string

// Error implements error.
func (e unfitError) Error() string { return string(e) }

// Unwrap returns [ErrUnfit].
func (unfitError) Unwrap() error { return ErrUnfit }

// Options are the optional settings of [New].
type Options struct {
	Now    func() time.Time // by default the time of the system
	Logger *slog.Logger     // by default nothing is logged

	// MaxTokens is the greatest part of a document that goes into the prompt. The default is
	// 8,192; a token counts as four bytes.
	MaxTokens int
}

// Documents gives access to the shared documents and to those of all scopes. It is safe
// for concurrent use.
type Documents struct {
	shared, scopes *os.Root
	opts           Options
	writing        sync.Mutex // held while a document is replaced

	// clock is incremented by each View. A cached document is fresh enough for a View if it
	// was checked when clock had at least the View's value.
	clock atomic.Uint64

	mu    sync.Mutex
	known map[key]cached
	size  int // bytes of their texts
}

// New returns the documents in the folder shared, and those in scopes, which has one
// folder per scope. Either may be nil, and then has no documents.
func New(shared, scopes *os.Root, o *Options) *Documents {
	d := &Documents{shared: shared, scopes: scopes, known: make(map[key]cached),
		opts: *cmp.Or(o, new(Options))}
	d.opts.Logger = cmp.Or(d.opts.Logger, slog.New(slog.DiscardHandler))
	if d.opts.Now == nil {
		d.opts.Now = time.Now
	}
	d.opts.MaxTokens = cmp.Or(d.opts.MaxTokens, 8_192)
	return d
}

// A Doc is a document in the form for the prompt. If the file does not exist, Text and
// Problem are "".
type Doc struct {
	Name     string
	Text     string // valid UTF-8 without white space around it; the beginning if it is long
	Hash     string // of the whole file, as [hash] makes it; "" if it isn't there or can't be read
	Template bool   // an unchanged template of the gateway; see [View.Shared]
	Problem  string // why it can't be read, for the agent and for people; or ""
}

// Prompt returns the document's text for the prompt, or a notice if the document can't be
// read. It returns "" for an unchanged template and for a missing document.
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

// Doc returns a document of a scope. The scope "" has no documents.
func (d *Documents) Doc(s memory.Scope, name string) Doc {
	if s == "" {
		return Doc{Name: name}
	}
	return d.doc(key{s, name}, always)
}

// hashOf returns the hash of a document's content.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
