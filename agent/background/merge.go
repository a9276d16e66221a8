package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gateway/agent/schedule"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// A Merger makes everything of a scope part of another one: its rows in the transaction of
// [Merger.Move], and its files in the background, for the kind [Merge]. All its fields are
// required.
type Merger struct {
	DB       *store.DB
	Memory   *memory.Memory
	Versions *Versions
	People   People
	Now      func() time.Time
	Logger   *slog.Logger

	sessions session.Store
	jobs     schedule.Store
	tasks    Store
}

// Move makes everything of a scope part of another one, if both are of the same people, as is known
// now. Else only the session goes there.
func (m *Merger) Move(tx *store.Tx, key session.Key, from, to memory.Scope) error {
	switch ok, err := follows(tx, m.People, from, to); {
	case err != nil:
		return err
	case !ok:
		return m.sessions.SetScope(tx, key, to)
	}
	late, err := m.runningIn(tx, from, key)
	if err != nil {
		return err
	}
	if err := m.sessions.MoveScope(tx, from, to); err != nil {
		return err
	}
	if err := m.Memory.Merge(tx, from, to); err != nil {
		return err
	}
	if err := m.tasks.Move(tx, from, to); err != nil {
		return err
	}
	if err := m.jobs.MoveScope(tx, from, to); err != nil {
		return err
	}
	work := Work{Kind: Merge, Scope: to, Session: string(from)}
	return m.tasks.Put(tx, Task{Work: work, State: late}, m.Now())
}

// merging is what is known of a merge. Turns are those that worked with the old scope when it was
// moved, and write there until they end.
type merging struct {
	Turns []int64 `json:"turns"`
}

// runningIn returns the merging of a scope that is about to be moved for the turn of a session, or
// nil if no other turn works with it.
func (m *Merger) runningIn(tx *store.Tx, s memory.Scope, key session.Key) ([]byte, error) {
	keys, err := m.sessions.OfScope(tx, s)
	var late merging
	for i := 0; i < len(keys) && err == nil; i++ {
		var t *session.Turn
		if t, err = m.sessions.RunningTurn(tx, keys[i]); t != nil && keys[i] != key {
			late.Turns = append(late.Turns, t.ID)
		}
	}
	if err != nil || late.Turns == nil {
		return nil, err
	}
	return jsonOf(late), nil
}

// mergeWait is how soon files are merged again while a turn may still write into the old scope.
const mergeWait = 10 * time.Second

// Scopes returns both scopes of a merge.
func (*Merger) Scopes(t *Task) []memory.Scope {
	return []memory.Scope{t.Scope, memory.Scope(t.Session)}
}

// Do merges the files of a scope into another one, now and until nobody writes into the old scope
// any more.
func (m *Merger) Do(ctx context.Context, t *Task) (o Outcome, err error) {
	var late merging
	if len(t.State) > 0 {
		if err := json.Unmarshal(t.State, &late); err != nil {
			return o, fmt.Errorf("background: merge into %s: %w", t.Scope, err)
		}
	}
	if len(late.Turns) > 0 {
		turns, err := m.runningTurns(ctx)
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(turns, func(t session.Turn) bool {
			return slices.Contains(late.Turns, t.ID)
		}) {
			o = Outcome{Again: m.Now().Add(mergeWait), State: t.State}
		}
	}
	return o, m.mergeFiles(ctx, t)
}

// runningTurns returns the turns that have not ended.
func (m *Merger) runningTurns(ctx context.Context) ([]session.Turn, error) {
	turns, err := m.sessions.RunningTurns(m.DB.Read(ctx))
	n, err := m.DB.Mend(ctx, m.Logger, err, m.sessions.Mend)
	if err != nil || n == 0 {
		return turns, err
	}
	return m.sessions.RunningTurns(m.DB.Read(ctx))
}

// mergeFiles does the part of Move that is about files. Files that are there already are not added
// again, and files that can't be read stay where it is.
func (m *Merger) mergeFiles(ctx context.Context, t *Task) error {
	from, err := memory.ParseScope(t.Session)
	if err != nil {
		return err
	}
	// A turn that had begun before may have written into the old scope since. If that is the one of
	// a conversation again, what is there now stays.
	err = m.tx(ctx, func(tx *store.Tx) error {
		keys, err := m.sessions.OfScope(tx, from)
		if err != nil || len(keys) > 0 {
			return err
		}
		return m.Memory.Merge(tx, from, t.Scope)
	})
	if err == nil {
		err = m.Memory.Settle(ctx)
	}
	if err == nil {
		err = m.Memory.MergeFiles(ctx, from, t.Scope)
	}
	if err != nil || m.Versions.Documents == nil {
		return err
	}
	for _, name := range []string{document.User, document.Memory, document.Soul, document.Heartbeat} {
		if err := m.mergeDocument(from, t.Scope, name); err != nil {
			return err
		}
		fault.Point("merging")
	}
	if err := m.mergeSkills(from, t.Scope); err != nil {
		return err
	}
	fault.Point("merging")
	_, err = m.Versions.Tree(t.Scope).Commit(ctx, version.Change{Author: "the gateway",
		Reason: "Merged with " + string(from) + ", which is the same person.",
		ID:     "merge-" + string(from)})
	fault.Point("merging")
	if err == nil {
		err = m.Versions.Tree(from).Remove(ctx)
	}
	if err != nil {
		return err
	}
	fault.Point("merging")
	return os.RemoveAll(filepath.Join(m.Versions.Path, string(from)))
}

func (m *Merger) mergeDocument(from, to memory.Scope, name string) error {
	text, _, err := m.Versions.Documents.Read(from, name)
	if err != nil {
		return err
	}
	now, hash, err := m.Versions.Documents.Read(to, name)
	text = strings.TrimSpace(text)
	if err != nil || text == "" || strings.Contains(now, text) {
		return err
	}
	text = strings.TrimSpace(strings.TrimSpace(now)+"\n\n"+text) + "\n"
	return m.Versions.Documents.Save(to, name, text, hash)
}

// mergeSkills brings the skills of a scope into another. Where both have one of a name and they
// differ, that of from has a folder of its own with a number.
func (m *Merger) mergeSkills(from, to memory.Scope) error {
	folders, err := os.ReadDir(filepath.Join(m.Versions.Path, string(from), "skills"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("background: merge %s into %s: %w", from, to, err)
	}
	for _, f := range folders {
		text, _, err := m.Versions.Documents.Read(from, path.Join("skills", f.Name(), "SKILL.md"))
		if err == nil && text != "" {
			err = m.mergeSkill(to, f.Name(), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Merger) mergeSkill(to memory.Scope, folder, text string) error {
	for n := 1; ; n++ {
		name := path.Join("skills", folder, "SKILL.md")
		if n > 1 {
			name = path.Join("skills", fmt.Sprintf("%s-%d", folder, n), "SKILL.md")
		}
		err := m.Versions.Documents.Create(to, name, text)
		if !errors.Is(err, document.ErrExists) {
			return err
		}
		// It is there if this was begun before the process ended.
		if there, _, err := m.Versions.Documents.Read(to, name); err != nil || there == text {
			return err
		}
	}
}

// tx runs fn in a transaction, which is finished also while the process ends.
func (m *Merger) tx(ctx context.Context, fn func(tx *store.Tx) error) error {
	return m.DB.Tx(context.WithoutCancel(ctx), fn)
}
