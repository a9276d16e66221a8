package memory

import (
	"context"
	"errors"
	"io"

	"gateway/store"
)

var errMissing = errors.New("memory: not there yet")

// Erase removes everything of the scope from the tables. Its folder is for [Memory.EraseFiles].
func (s *Space) Erase(tx *store.Tx) error { return errMissing }

// EraseFiles removes the folder of a scope.
func (m *Memory) EraseFiles(ctx context.Context, s Scope) error { return errMissing }

// Merge moves everything of one scope into another, because both are of the same person.
// [Memory.MergeFiles] does what is left to do once it is committed.
func (m *Memory) Merge(tx *store.Tx, from, to Scope) error { return errMissing }

// MergeFiles brings the history files to what [Memory.Merge] has made of the tables.
func (m *Memory) MergeFiles(ctx context.Context, from, to Scope) error { return errMissing }

// Sync appends to the history file of a scope what it lacks.
func (m *Memory) Sync(ctx context.Context, s Scope) error { return errMissing }

// SyncAll does what [Memory.Sync] does for all scopes whose files lag behind, and ends what
// [Space.Erase] and [Memory.Merge] have left to do when the process ended.
func (m *Memory) SyncAll(ctx context.Context) error { return errMissing }

// A Rebuilt says what [Memory.Rebuild] has found.
type Rebuilt struct {
	Entries int      // that there are now
	Changed int      // whose text, time or session was another one
	Added   int      // that the table did not have
	Removed int      // that the file does not have
	Bad     []string // lines that are no entries, with their numbers; they stay in the file
}

// Rebuild makes the entries and the index of a scope anew from its history file.
func (m *Memory) Rebuild(ctx context.Context, s Scope) (Rebuilt, error) {
	return Rebuilt{}, errMissing
}

// Export writes the facts and entries of a scope as lines of JSON, after a line that says so.
func (m *Memory) Export(ctx context.Context, s Scope, w io.Writer) error { return errMissing }
