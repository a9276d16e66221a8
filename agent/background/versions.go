package background

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/store/plaintext"
)

// Versions stores versions of the documents of all scopes. Without Documents there are none.
type Versions struct {
	Documents *document.Documents
	Store     *version.Store
	Path      string // folder with one folder per scope
	Shared    string // folder of the shared documents; "": none
	Zone      *time.Location
}

// The authors of versions that the gateway records by itself.
var (
	ByHand  = version.Change{Author: "a person", Reason: "Edited by hand."}
	Written = version.Change{Author: "the agent", Reason: "Written in a conversation."}
)

// SharedTree is the name of the tree of the shared documents.
const SharedTree = "shared"

// CommitShared records the current shared documents as a change by c. If nothing was recorded
// before, it does not claim that c has made all of them.
func CommitShared(ctx context.Context, tree *version.Tree, c version.Change) error {
	list, err := tree.Log(ctx, 1)
	if err == nil && len(list) == 0 {
		c = version.Change{Author: "the gateway", Reason: "As they were at the first recorded change."}
	}
	if err == nil {
		_, err = tree.Commit(ctx, c)
	}
	return err
}

// Record records the documents of a scope, and the shared ones if shared is set, as a change by c.
func (v *Versions) Record(
	ctx context.Context, s memory.Scope, shared bool, c version.Change,
) error {
	if s != "" {
		if _, err := v.Tree(s).Commit(ctx, c); err != nil {
			return err
		}
	}
	if !shared || v.Shared == "" {
		return nil
	}
	return CommitShared(ctx, v.Store.Tree(SharedTree, v.Shared, document.IsVersioned), c)
}

// Tree returns the versions of a scope's documents.
func (v *Versions) Tree(s memory.Scope) *version.Tree {
	return v.Store.Tree(string(s), filepath.Join(v.Path, string(s)), document.IsVersioned)
}

// A Recorder stores a version of documents that the agent has changed, for the kind [Version].
type Recorder struct{ *Versions }

// Do stores a version of the current documents.
func (r Recorder) Do(ctx context.Context, t *Task) (Outcome, error) {
	return Outcome{}, r.Record(ctx, t.Scope, false, Written)
}

// A Lister lists changes for the kind [Log]. Only older gateways have added such tasks.
type Lister struct{ *Versions }

// Do lists the changes.
func (l Lister) Do(ctx context.Context, t *Task) (o Outcome, err error) {
	o.Text, err = l.Changes(ctx, t.Scope, string(t.State))
	return o, err
}

// Limits of /dream-log.
const (
	maxLog  = 10   // versions
	maxDiff = 3000 // bytes
)

// Changes describes, for /dream-log, the changes of a scope's documents: one version completely, or
// a list of the newest ones if id is "".
func (v *Versions) Changes(ctx context.Context, s memory.Scope, id string) (string, error) {
	if v.Documents == nil {
		return "There are no documents.", nil
	}
	tree := v.Tree(s)
	if id != "" {
		text, err := tree.Show(ctx, id)
		if err != nil {
			return versionErrorText(err)
		}
		if len(text) > maxDiff {
			text = plaintext.Cut(text, maxDiff) + "\n…"
		}
		return "```diff\n" + strings.ReplaceAll(text, "```", "'''") + "\n```", nil
	}
	list, err := tree.Log(ctx, maxLog)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "My documents about this conversation have not changed yet.", nil
	}
	var b strings.Builder
	for _, one := range list {
		first, _, _ := strings.Cut(one.Reason, "\n")
		fmt.Fprintf(&b, "- `%s` %s, %s: %s\n", short(one.ID),
			one.Time.In(v.Zone).Format("2006-01-02 15:04"), one.Author, first)
	}
	return b.String() + "\n`/dream-log ID` shows one, `/dream-restore ID` undoes it.", nil
}

// short returns the beginning of a version's id.
func short(id string) string { return id[:min(len(id), 8)] }

// versionErrorText returns the text that people read about an error that they can fix.
func versionErrorText(err error) (string, error) {
	if conflict, ok := errors.AsType[*version.ConflictError](err); ok {
		return "I can't undo that, because the same lines have changed again since: " +
			conflict.Error() + ". Nothing has changed.", nil
	}
	if errors.Is(err, version.ErrUnknown) || errors.Is(err, version.ErrAmbiguous) {
		return "I can't find that change: " + strings.TrimPrefix(err.Error(), "version: ") +
			". `/dream-log` lists the changes.", nil
	}
	return "", err
}
