// Package export writes all data that the gateway stores about one person, as Markdown for people
// and JSON for programs. It is the counterpart of erasing: both find the data of a person with
// [background.Eraser]. A test checks that an export contains everything that erasing would delete.
//
// The main type is [Exporter]. It only reads, a page of rows at a time, so it does not block a
// running gateway. [Sender] is the background task that sends an export to the person.
//
// An export contains no words of other people. Conversations in direct chats are complete. From a
// group it has the person's messages and the answers to these messages alone, as long as the inbox
// and the outbox keep them. It contains no secrets of the gateway either: it replaces them in
// texts, leaves out files that contain one, and omits columns such as codes and delivery keys.
//
// The package owns no tables.
package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// An Exporter writes exports. A field is required unless its comment says otherwise. It is safe for
// concurrent use.
type Exporter struct {
	DB     *store.DB
	People background.People
	Memory *os.Root // has one folder per scope
	Media  *os.Root // has the files that people have sent and received
	Before string   // folder with the document versions of earlier gateways; may be missing

	// Secrets returns the gateway's credentials, and HasSecret finds them in a file.
	Secrets   func() []string
	HasSecret func(io.Reader) (bool, error)

	Zone *time.Location // of times in Markdown
	Now  func() time.Time
}

// A Target receives the files of an export, one after another.
type Target interface {
	// Create begins a file. The returned writer is valid until the next call of Create.
	Create(name string) (io.Writer, error)

	// Room returns approximately how many more bytes fit.
	Room() int64
}

// ErrNobody reports that nothing is stored about a person.
var ErrNobody = errors.New("nothing is stored about this person")

// A run is the state of one export.
type run struct {
	*Exporter
	to      Target
	read    store.Queryer
	owned   background.Erasure
	keys    []session.Key
	clean   *strings.Replacer // removes secrets
	leftOut []string          // lines for the README
	unnamed int               // number of files that were left out besides
}

// Write writes everything that belongs to the scope s, which is that of a person or of a direct
// chat with an unknown person. chats are direct chats that are known to belong to s. It returns an
// error that wraps [ErrNobody] if nothing is stored. After any error, the files in to are
// incomplete.
func (e *Exporter) Write(
	ctx context.Context, s memory.Scope, chats []bus.Address, to Target,
) error {
	r := &run{Exporter: e, to: to, read: e.DB.Read(ctx), clean: cleaner(e.Secrets()),
		owned: background.Erasure{Scopes: []memory.Scope{s}, Person: s.Person(), Chats: chats}}
	eraser := background.Eraser{DB: e.DB, Inbox: bus.NewInbox(), People: e.People}
	var err error
	if r.keys, err = eraser.Find(r.read, &r.owned); err != nil {
		return err
	}
	known, err := e.People.Known(r.read, r.owned.Person)
	// Somebody has written in each of chats, so at least that message is stored.
	if err == nil && !known && len(r.keys) == 0 && len(chats) == 0 {
		err = ErrNobody
	}
	// readme is the last, because it lists what the others have left out.
	for _, part := range []func(context.Context) error{
		r.rows, r.conversations, r.groups, r.documents, r.files, r.readme,
	} {
		if err == nil {
			err = part(ctx)
		}
		if err == nil {
			err = ctx.Err()
		}
	}
	return store.Wrap(err, "export %s", s)
}

// conversations writes each session as Markdown, and as JSON that "gateway sessions import" reads.
func (r *run) conversations(context.Context) error {
	for _, key := range r.keys {
		base := "conversations/" + FileName(key.String())
		w, err := r.to.Create(base + ".jsonl")
		if err != nil {
			return err
		}
		lines := &lineCleaner{to: w, clean: r.clean}
		err = session.Export(r.read, key, lines)
		if errors.Is(err, session.ErrNone) {
			continue // erased in the meantime
		}
		if err = errors.Join(err, lines.flush()); err != nil {
			return err
		}
		if w, err = r.to.Create(base + ".md"); err != nil {
			return err
		}
		out := bufio.NewWriter(w)
		if err := errors.Join(r.transcript(key, out), out.Flush()); err != nil {
			return err
		}
	}
	return nil
}

// documents copies the folders of the scopes, with all documents, skills and the history.
func (r *run) documents(ctx context.Context) error {
	for _, s := range r.owned.Scopes {
		err := r.copyFolder(ctx, r.Memory, string(s), "memory/"+string(s), true)
		if err != nil {
			return err
		}
	}
	before, err := os.OpenRoot(r.Before)
	if err != nil {
		return nil // there were no earlier gateways
	}
	defer before.Close()
	entries, err := os.ReadDir(r.Before)
	for _, entry := range entries {
		// The names begin with that of the scope.
		name, _, _ := strings.Cut(entry.Name(), ".")
		if err == nil && slices.Contains(r.owned.Scopes, memory.Scope(name)) {
			err = r.copyFolder(ctx, before, entry.Name(), "memory/versions/"+entry.Name(), false)
		}
	}
	return err
}

// files copies the files that were sent in the direct chats.
func (r *run) files(ctx context.Context) error {
	for _, a := range r.owned.Chats {
		err := r.copyFolder(ctx, r.Media, a.Folder(), "files/"+a.Folder(), false)
		if err != nil {
			return err
		}
	}
	return nil
}

const readme = `# What is stored about you

Exported on %s. It does not include what is stored after that moment.

- conversations: your conversations in direct chats, with the agent's notes on them. Each is there
  twice: .md to read, .jsonl for programs. "gateway sessions import" reads the latter.
- groups: what you have said in groups, and the answers to you. The words of others, answers to
  several people at once, and messages that the gateway has deleted by their age are not here.
- memory: the documents and the history of your memory.
- files: the files that you and the agent have sent in direct chats. Files in groups stay there.
- data: the rows of the database, one JSON object per line, in files named after their tables. Among
  them are your identity and role, facts, versions of documents, jobs, usage, and decisions.

Passwords and keys are not here: secrets of the gateway, codes, and the keys with which platforms
encrypt. What other people have said about you belongs to their memories, and is not here either.
`

// readme writes a list of the export's contents and of the data that was left out.
func (r *run) readme(context.Context) error {
	w, err := r.to.Create("README.md")
	if err == nil {
		_, err = fmt.Fprintf(w, readme, r.Now().In(r.Zone).Format(time.RFC1123))
	}
	if r.unnamed > 0 {
		r.leftOut = append(r.leftOut, fmt.Sprintf("and %d more", r.unnamed))
	}
	if err == nil && len(r.leftOut) > 0 {
		_, err = fmt.Fprintf(w, "\nLeft out:\n\n- %s\n", strings.Join(r.leftOut, "\n- "))
	}
	return err
}
