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

// A Merger moves everything of a scope into another one: the rows in the transaction of
// [Merger.Move], the files in the background, for the kind [Merge]. All its fields are required.
type Merger struct {
	DB       *store.DB
	Memory   *memory.Memory
	Versions *Versions
	People   People
	Now      func() time.Time
	Logger   *slog.Logger

	jobs  schedule.Store
	tasks Store
}

// Move moves everything of the scope from into the scope to if both are known to belong to the same
// people. Otherwise it moves only the session.
func (m *Merger) Move(tx *store.Tx, key session.Key, from, to memory.Scope) error {
	switch ok, err := follows(tx, m.People, from, to); {
	case err != nil:
		return err
	case !ok:
		return session.SetScope(tx, key, to)
	}
	late, err := m.runningIn(tx, from, key)
	if err != nil {
		return err
	}
	if err := session.MoveScope(tx, from, to); err != nil {
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

// A merging is the state of a merge. Turns are the turns that were using the old scope when it was
// moved. They continue to write there until they end.
type merging struct {
	Turns []int64 `json:"turns"`
}

// runningIn returns the state of a merge of the scope s, which is about to be moved for a turn of
// the session key. It returns nil if no other turn uses the scope.
func (m *Merger) runningIn(tx *store.Tx, s memory.Scope, key session.Key) ([]byte, error) {
	keys, err := session.OfScope(tx, s)
	var late merging
	for i := 0; i < len(keys) && err == nil; i++ {
		var t *session.Turn
		if t, err = session.RunningTurn(tx, keys[i]); t != nil && keys[i] != key {
			late.Turns = append(late.Turns, t.ID)
		}
	}
	if err != nil || late.Turns == nil {
		return nil, err
	}
	return jsonOf(late), nil
}

// mergeWait is the time until files are merged again, while a turn may still write into the old
// scope.
const mergeWait = 10 * time.Second

// Scopes returns both scopes of a merge.
func (*Merger) Scopes(t *Task) []memory.Scope {
	return []memory.Scope{t.Scope, memory.Scope(t.Session)}
}

// Do merges the files of a scope into another one. It repeats this until no turn writes into the
// old scope any more.
func (m *Merger) Do(ctx context.Context, t *Task) (o Outcome, err error) {
	var late merging
	if len(t.State) > 0 {
		if err := json.Unmarshal(t.State, &late); err != nil {
			return o, fmt.Errorf("background: merge into %s: %w", t.Scope, err)
		}
	}
	if len(late.Turns) > 0 {
		turns, err := session.RepairRunning(ctx, m.DB, m.Logger)
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(turns, func(t session.Turn) bool {
			return slices.Contains(late.Turns, t.ID)
		}) {
			o = Outcome{ContinueAt: m.Now().Add(mergeWait), State: t.State}
		}
	}
	return o, m.mergeFiles(ctx, t)
}

// mergeFiles moves the files of a scope. It does not add files that exist already, and leaves files
// that can't be read where they are.
func (m *Merger) mergeFiles(ctx context.Context, t *Task) error {
	from, err := memory.ParseScope(t.Session)
	if err != nil {
		return err
	}
	// A turn that had begun before may have written into the old scope since then. If the old scope
	// has become that of a conversation again, its current data stays.
	err = commit(ctx, m.DB, func(tx *store.Tx) error {
		keys, err := session.OfScope(tx, from)
		if err != nil || len(keys) > 0 {
			return err
		}
		return m.Memory.Merge(tx, from, t.Scope)
	})
	if err == nil {
		err = m.Memory.FinishDetached(ctx)
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

// mergeSkills moves the skills of a scope into another one. If both have different skills with the
// same name, the moved one gets a folder with a number.
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
		// If an earlier attempt was killed, the file may already be there.
		if there, _, err := m.Versions.Documents.Read(to, name); err != nil || there == text {
			return err
		}
	}
}
