package background

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/bus"
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

// Owns reports whether a scope has conversations or jobs.
func Owns(q store.Queryer, s memory.Scope) (bool, error) {
	keys, err := session.OfScope(q, s)
	if err != nil || len(keys) > 0 {
		return len(keys) > 0, err
	}
	jobs, err := schedule.List(q, schedule.Filter{Scope: s, Over: true})
	return len(jobs) > 0, err
}

// CloseTurn ends a turn whose worker does not end it, together with its questions and the messages
// that it has claimed. Each open tool call gets the given result, and text is the last message.
// Later writes of the turn fail.
func CloseTurn(
	tx *store.Tx, inbox *bus.Inbox, t *session.Turn, now time.Time, result, text string,
) error {
	if err := question.EndAll(tx, t.ID); err != nil {
		return err
	}
	messages, err := session.TurnMessages(tx, t)
	if err != nil {
		return err
	}
	last := append(prompt.FillMissingResults(messages, result),
		llm.Message{Role: llm.Assistant, Text: text})
	if err := session.EndTurn(tx, t, session.Stopped, now, last...); err != nil {
		return err
	}
	return inbox.Finish(tx, t.ID)
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
	return o, m.mergeFiles(ctx, t, o.ContinueAt.IsZero())
}

// mergeFiles moves the files of a scope. It does not add files that exist already. last says that
// no turn writes into the scope any more: then mergeFiles removes the folder of the scope.
func (m *Merger) mergeFiles(ctx context.Context, t *Task, last bool) error {
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
	kept := make(map[string]bool) // documents that can't be joined
	for _, name := range mergedDocuments {
		switch err := m.mergeDocument(from, t.Scope, name); {
		case errors.Is(err, document.ErrUnfit):
			kept[name] = true
		case err != nil:
			return err
		}
		fault.Point("merging")
	}
	folders, hashes, err := m.mergeSkills(from, t.Scope, kept)
	if err == nil {
		err = m.moveOthers(from, t.Scope, folders, kept)
	}
	for name, hash := range hashes { // only now: without the text, the new folder is not known
		if err == nil {
			err = m.empty(from, name, hash)
		}
	}
	if err != nil {
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
	if err != nil || !last {
		return err
	}
	fault.Point("merging")
	return os.RemoveAll(filepath.Join(m.Versions.Path, string(from)))
}

// mergedDocuments are the documents whose texts are joined.
var mergedDocuments = []string{document.User, document.Memory, document.Soul, document.Heartbeat}

// mergeDocument adds the text of a document to that of another scope. It leaves the first document
// empty, so that it is not added again later, unless a turn has changed it in the meantime. If one
// of the files can't be a document, or if both together are too long, mergeDocument changes nothing
// and returns an error that wraps [document.ErrUnfit].
func (m *Merger) mergeDocument(from, to memory.Scope, name string) error {
	documents := m.Versions.Documents
	text, before, err := documents.Read(from, name)
	text = strings.TrimSpace(text)
	if err != nil || text == "" {
		return err
	}
	now, hash, err := documents.Read(to, name)
	if err != nil {
		return err
	}
	if !strings.Contains(now, text) {
		text = strings.TrimSpace(strings.TrimSpace(now)+"\n\n"+text) + "\n"
		if err := documents.Save(to, name, text, hash); err != nil {
			return err
		}
	}
	return m.empty(from, name, before)
}

// empty empties a document that was merged, so that it is not merged again later.
func (m *Merger) empty(s memory.Scope, name, hash string) error {
	err := m.Versions.Documents.Save(s, name, "", hash)
	if errors.Is(err, document.ErrChanged) {
		return nil // a turn has changed it, and it is merged again
	}
	return err
}

// mergeSkills writes the SKILL.md of each skill of a scope into another one. If both have different
// skills with the same name, the moved one gets a folder with a number. mergeSkills returns the new
// folder of each skill, and the hash of each SKILL.md that it has read. It adds to kept each
// SKILL.md that can't be a document.
func (m *Merger) mergeSkills(
	from, to memory.Scope, kept map[string]bool,
) (folders, hashes map[string]string, err error) {
	list, err := os.ReadDir(filepath.Join(m.Versions.Path, string(from), document.SkillsFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("background: merge %s into %s: %w", from, to, err)
	}
	folders, hashes = make(map[string]string), make(map[string]string)
	for _, f := range list {
		folders[f.Name()] = f.Name()
		name := skillFile(f.Name())
		text, hash, err := m.Versions.Documents.Read(from, name)
		if err == nil && text != "" {
			hashes[name] = hash
			folders[f.Name()], err = m.mergeSkill(to, f.Name(), text)
		}
		switch {
		case errors.Is(err, document.ErrUnfit):
			kept[name] = true
			folders[f.Name()] = f.Name()
			delete(hashes, name)
		case err != nil:
			return nil, nil, err
		}
	}
	return folders, hashes, nil
}

// skillFile returns the document of the skill in a folder.
func skillFile(folder string) string { return path.Join(document.SkillsFolder, folder, "SKILL.md") }

// mergeSkill writes a skill and returns its folder.
func (m *Merger) mergeSkill(to memory.Scope, folder, text string) (string, error) {
	for n := 1; ; n++ {
		name := folder
		if n > 1 {
			name = fmt.Sprintf("%s-%d", folder, n)
		}
		err := m.Versions.Documents.Create(to, skillFile(name), text)
		if !errors.Is(err, document.ErrExists) {
			return name, err
		}
		// If an earlier attempt was killed, the file may already be there.
		there, _, err := m.Versions.Documents.Read(to, skillFile(name))
		if !errors.Is(err, document.ErrUnfit) && (err != nil || there == text) {
			return name, err
		}
	}
}

// moveOthers moves the files of a scope that remain: further documents and other files, those that
// are kept, and the files beside the SKILL.md of a skill, whose new folder is in folders. If the
// other scope has a different file with the same name, the moved one gets a number.
func (m *Merger) moveOthers(
	from, to memory.Scope, folders map[string]string, kept map[string]bool,
) error {
	root, err := os.OpenRoot(m.Versions.Path)
	if err != nil {
		return fmt.Errorf("background: merge %s into %s: %w", from, to, err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), string(from), func(name string, f fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		rel := strings.TrimPrefix(name, string(from)+"/")
		if err != nil || !f.Type().IsRegular() || !kept[rel] && isMerged(rel) {
			return err
		}
		elements := strings.Split(rel, "/")
		if len(elements) > 2 && elements[0] == document.SkillsFolder {
			elements[1] = cmp.Or(folders[elements[1]], elements[1])
		}
		return moveFile(root, name, path.Join(append([]string{string(to)}, elements...)...))
	})
	return store.Wrap(err, "background: merge %s into %s", from, to)
}

// isMerged reports whether a file of a scope is joined with that of another one, or is the history
// or a temporary file.
func isMerged(rel string) bool {
	elements := strings.Split(rel, "/")
	base := elements[len(elements)-1]
	return slices.Contains(mergedDocuments, rel) || strings.HasPrefix(base, ".gateway-") ||
		len(elements) == 3 && rel == skillFile(elements[1]) ||
		len(elements) == 1 && strings.HasPrefix(rel, memory.HistoryFile)
}

// maxNames is the maximum number of names that are tried for a file.
const maxNames = 100

// moveFile moves a file. If another file has its new name, the file gets a number. It stays where
// it is if the same content is already there.
func moveFile(root *os.Root, from, to string) error {
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	ext := path.Ext(to)
	for n := range maxNames {
		name := to
		if n > 0 {
			name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(to, ext), n+1, ext)
		}
		there, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
				return err
			}
			return root.Rename(from, name)
		}
		if err != nil || !there.Mode().IsRegular() || there.Size() != info.Size() {
			continue
		}
		// Only files of one size are read: people may have put large ones there.
		if same, err := equal(root, from, name); same || err != nil {
			return err
		}
	}
	return fmt.Errorf("there are %d files like %s", maxNames, to)
}

// equal reports whether two files have the same content.
func equal(root *os.Root, a, b string) (bool, error) {
	first, err := root.ReadFile(a)
	if err != nil {
		return false, err
	}
	second, err := root.ReadFile(b)
	return err == nil && bytes.Equal(first, second), nil
}
