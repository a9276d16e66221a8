package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gateway/agent/background"
	"gateway/agent/dream"
	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// dreamer returns what makes lasting memory out of the history of a scope.
func (d *Dispatcher) dreamer(of memory.Scope) *dream.Dreamer {
	return dream.New(dream.Deps{
		DB:        d.DB,
		History:   func(s memory.Scope) dream.History { return d.Memory.In(s) },
		Documents: d.Documents,
		Versions:  func(s memory.Scope) dream.Versions { return d.tree(s) },
		Skills:    d.skillNames,
		Ask: func(ctx context.Context, req llm.Request) (*llm.Response, error) {
			return d.consult(ctx, spenderOf(of, ""), req)
		},
		Now: d.opts.Now, Logger: d.opts.Logger,
	}, &dream.Options{Zone: d.opts.Location})
}

// tree returns the versions of a scope's documents.
func (d *Dispatcher) tree(s memory.Scope) *version.Tree {
	return d.Versions.Tree(string(s), filepath.Join(d.opts.MemoryPath, string(s)), document.Versioned)
}

func (d *Dispatcher) skillNames(s memory.Scope) []string {
	if d.Skills == nil {
		return nil
	}
	var names []string
	for _, skill := range d.Skills.List(string(s)) {
		names = append(names, skill.Name)
	}
	return names
}

// dream looks at what is new in the history of a scope.
func (d *Dispatcher) dream(ctx context.Context, c *background.Task) (outcome, error) {
	if d.Documents == nil {
		return outcome{said: "There are no documents that I could write to."}, nil
	}
	save := func(ctx context.Context, state []byte) error {
		c.State = state
		return d.tx(ctx, func(tx *store.Tx) error { return d.chores.Save(tx, c, state) })
	}
	report, err := d.dreamer(c.Scope).Run(ctx, c.Scope, c.State, save)
	if gaveUp, ok := errors.AsType[*dream.GiveUpError](err); ok {
		return d.gaveUp(ctx, c, gaveUp)
	}
	if err != nil {
		return outcome{}, err
	}
	d.opts.Logger.InfoContext(ctx, "dreamt", "scope", c.Scope, "from", report.From, "to", report.To,
		"changes", len(report.Changes), "skipped", len(report.Skipped), "version", report.Version)
	r := outcome{said: sayDream(report)}
	if report.More {
		r.again = d.opts.Now().Add(dreamPause)
	}
	return r, nil
}

// dreamPause is between two runs of Dream in one scope, if there is much to look at.
const dreamPause = time.Minute

// gaveUp tells owners, once, that the model is of no use for Dream, and lets that rest.
func (d *Dispatcher) gaveUp(
	ctx context.Context, c *background.Task, e *dream.GiveUpError,
) (outcome, error) {
	d.opts.Logger.WarnContext(ctx, "dream given up for now", "scope", c.Scope, "err", e)
	wait := max(d.config().DreamEvery, maxRetry) << min(max(e.Failures-3, 0), 6)
	r := outcome{again: d.opts.Now().Add(wait), state: c.State,
		said: "The language model's answers were of no use, so nothing has changed."}
	if e.Failures > 3 {
		return r, nil
	}
	return r, d.tx(ctx, func(tx *store.Tx) error {
		return d.tellOwners(tx, func(to bus.Address) bus.OutboundMessage {
			return bus.OutboundMessage{To: to, Text: fmt.Sprintf("I could not turn the notes of `%s` "+
				"into lasting memory: the language model's answers were of no use, %d times in a row. "+
				"Nothing is lost; I try again later. The log says more.", c.Scope, e.Failures)}
		}, bus.Address{})
	})
}

func sayDream(r dream.Report) string {
	var b strings.Builder
	switch {
	case r.From == r.To:
		return "There are no new notes since I looked last. Notes are made when a conversation gets " +
			"long, rests, or ends with `/new`; `/compact` makes them now."
	case len(r.Changes) == 0 && len(r.Skipped) == 0:
		return "I have looked at what is new, and there was nothing to keep for good."
	case r.Version != "":
		fmt.Fprintf(&b, "I have changed my memory; `/dream-restore %s` takes it back:\n\n",
			short(r.Version))
	}
	for _, line := range r.Changes {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range r.Skipped {
		b.WriteString("- Not done: " + line + "\n")
	}
	return strings.TrimSpace(b.String())
}

// short returns the beginning of a version's name.
func short(id string) string { return id[:min(len(id), 8)] }

// The bounds of what /dream-log shows.
const (
	maxLog  = 10   // versions
	maxDiff = 3000 // bytes
)

// changes describes what was changed in the documents of a scope, or only the change with an id.
func (d *Dispatcher) changes(
	ctx context.Context, scope memory.Scope, id string,
) (string, error) {
	if d.Documents == nil {
		return "There are no documents.", nil
	}
	tree := d.tree(scope)
	if id != "" {
		text, err := tree.Show(ctx, id)
		if err != nil {
			return sayVersion(err)
		}
		if len(text) > maxDiff {
			text = prompt.Clip(text, maxDiff) + "\n…"
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
	for _, v := range list {
		first, _, _ := strings.Cut(v.Reason, "\n")
		fmt.Fprintf(&b, "- `%s` %s, %s: %s\n", short(v.ID),
			v.Time.In(d.opts.Location).Format("2006-01-02 15:04"), v.Author, first)
	}
	return b.String() + "\n`/dream-log ID` shows one, `/dream-restore ID` takes it back.", nil
}

// undo answers /dream-restore: it takes one change back.
func (d *Dispatcher) undo(ctx context.Context, c *background.Task) (string, error) {
	if d.Documents == nil {
		return "There are no documents.", nil
	}
	id := string(c.State)
	tree := d.tree(c.Scope)
	_, err := tree.Commit(ctx, version.Change{Author: "a person", Reason: "Edited by hand."})
	if err != nil {
		return "", err
	}
	v, err := tree.Undo(ctx, id, version.Change{Author: "a person",
		Reason: "Takes back " + id + ".", ID: fmt.Sprintf("undo-%d", c.ID)})
	if err != nil {
		return sayVersion(err)
	}
	if v.ID == "" {
		return "There is nothing left of that change.", nil
	}
	return fmt.Sprintf("I have taken `%s` back; that is `%s` in `/dream-log`.", id, short(v.ID)), nil
}

// sayVersion returns what people are told of an error that is theirs to mend.
func sayVersion(err error) (string, error) {
	if conflict, ok := errors.AsType[*version.ConflictError](err); ok {
		return "That can't be taken back, as the same lines were changed again since: " +
			conflict.Error() + ". Nothing has changed.", nil
	}
	if errors.Is(err, version.ErrUnknown) || errors.Is(err, version.ErrAmbiguous) {
		return "I can't find that: " + strings.TrimPrefix(err.Error(), "version: ") +
			". `/dream-log` lists the changes.", nil
	}
	return "", err
}

// moveScope makes everything of a scope part of another one, if both are of the same people, as is
// known now. Else only the session goes there.
func (d *Dispatcher) moveScope(tx *store.Tx, key session.Key, from, to memory.Scope) error {
	switch follows, err := d.follows(tx, from, to); {
	case err != nil:
		return err
	case !follows:
		return d.sessions.SetScope(tx, key, to)
	}
	late, err := d.runningIn(tx, from, key)
	if err != nil {
		return err
	}
	if err := d.sessions.MoveScope(tx, from, to); err != nil {
		return err
	}
	if err := d.Memory.Merge(tx, from, to); err != nil {
		return err
	}
	if err := d.chores.Move(tx, from, to); err != nil {
		return err
	}
	if d.Jobs != nil {
		if err := d.Jobs.MoveScope(tx, from, to); err != nil {
			return err
		}
	}
	work := background.Work{Kind: background.Merge, Scope: to, Session: string(from)}
	return d.chores.Put(tx, background.Task{Work: work, State: late}, d.opts.Now())
}

// A merging is what is known of a merge. Turns are those that worked with the old scope when it was
// moved, and write there until they end.
type merging struct {
	Turns []int64 `json:"turns"`
}

// runningIn returns the merging of a scope that is about to be moved for the turn of a session, or
// nil if no other turn works with it.
func (d *Dispatcher) runningIn(tx *store.Tx, s memory.Scope, key session.Key) ([]byte, error) {
	keys, err := d.sessions.OfScope(tx, s)
	var m merging
	for i := 0; i < len(keys) && err == nil; i++ {
		var t *session.Turn
		if t, err = d.sessions.RunningTurn(tx, keys[i]); t != nil && keys[i] != key {
			m.Turns = append(m.Turns, t.ID)
		}
	}
	if err != nil || m.Turns == nil {
		return nil, err
	}
	return jsonOf(m), nil
}

// mergeWait is how soon files are merged again while a turn may still write into the old scope.
const mergeWait = 10 * time.Second

// mergeScope merges the files of a scope into another one, now and until nobody writes into the old
// scope any more.
func (d *Dispatcher) mergeScope(ctx context.Context, c *background.Task) (r outcome, err error) {
	var m merging
	if len(c.State) > 0 {
		if err := json.Unmarshal(c.State, &m); err != nil {
			return r, fmt.Errorf("agent: merge into %s: %w", c.Scope, err)
		}
	}
	if len(m.Turns) > 0 {
		turns, err := d.runningTurns(ctx)
		if err != nil {
			return r, err
		}
		if slices.ContainsFunc(turns, func(t session.Turn) bool {
			return slices.Contains(m.Turns, t.ID)
		}) {
			r = outcome{again: d.opts.Now().Add(mergeWait), state: c.State}
		}
	}
	return r, d.mergeFiles(ctx, c)
}

// follows reports whether the memory of a scope belongs to who has that of another: what is known
// of a person is never for a chat, where others may read it, and stays with who is known still.
func (d *Dispatcher) follows(q store.Queryer, from, to memory.Scope) (bool, error) {
	if from.Person() == 0 {
		return true, nil
	}
	if to.Person() == 0 {
		return false, nil
	}
	known, err := d.opts.Known(q, from.Person())
	return !known, err
}

// mergeFiles is the part of moveScope that is files. What is there already is not added again, and
// what can't be read stays where it is.
func (d *Dispatcher) mergeFiles(ctx context.Context, c *background.Task) error {
	from, err := memory.ParseScope(c.Session)
	if err != nil {
		return err
	}
	// A turn that had begun before may have written into the old scope since. If that is the one of
	// a conversation again, what is there now stays.
	err = d.tx(ctx, func(tx *store.Tx) error {
		keys, err := d.sessions.OfScope(tx, from)
		if err != nil || len(keys) > 0 {
			return err
		}
		return d.Memory.Merge(tx, from, c.Scope)
	})
	if err == nil {
		err = d.Memory.Settle(ctx)
	}
	if err == nil {
		err = d.Memory.MergeFiles(ctx, from, c.Scope)
	}
	if err != nil || d.Documents == nil {
		return err
	}
	for _, name := range []string{document.User, document.Memory, document.Soul, document.Heartbeat} {
		if err := d.mergeDocument(from, c.Scope, name); err != nil {
			return err
		}
		fault.Point("merging")
	}
	if err := d.mergeSkills(from, c.Scope); err != nil {
		return err
	}
	fault.Point("merging")
	_, err = d.tree(c.Scope).Commit(ctx, version.Change{Author: "the gateway",
		Reason: "Merged with " + string(from) + ", which is the same person.",
		ID:     "merge-" + string(from)})
	fault.Point("merging")
	if err == nil {
		err = d.tree(from).Remove(ctx)
	}
	if err != nil {
		return err
	}
	fault.Point("merging")
	return os.RemoveAll(filepath.Join(d.opts.MemoryPath, string(from)))
}

func (d *Dispatcher) mergeDocument(from, to memory.Scope, name string) error {
	text, _, err := d.Documents.Read(from, name)
	if err != nil {
		return err
	}
	now, hash, err := d.Documents.Read(to, name)
	text = strings.TrimSpace(text)
	if err != nil || text == "" || strings.Contains(now, text) {
		return err
	}
	text = strings.TrimSpace(strings.TrimSpace(now)+"\n\n"+text) + "\n"
	return d.Documents.Save(to, name, text, hash)
}

// mergeSkills brings the skills of a scope into another. Where both have one of a name and they
// differ, that of from has a folder of its own with a number.
func (d *Dispatcher) mergeSkills(from, to memory.Scope) error {
	folders, err := os.ReadDir(filepath.Join(d.opts.MemoryPath, string(from), "skills"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("agent: merge %s into %s: %w", from, to, err)
	}
	for _, f := range folders {
		text, _, err := d.Documents.Read(from, path.Join("skills", f.Name(), "SKILL.md"))
		if err == nil && text != "" {
			err = d.mergeSkill(to, f.Name(), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) mergeSkill(to memory.Scope, folder, text string) error {
	for n := 1; ; n++ {
		name := path.Join("skills", folder, "SKILL.md")
		if n > 1 {
			name = path.Join("skills", fmt.Sprintf("%s-%d", folder, n), "SKILL.md")
		}
		err := d.Documents.Create(to, name, text)
		if !errors.Is(err, document.ErrExists) {
			return err
		}
		// It is there if this was begun before the process ended.
		if there, _, err := d.Documents.Read(to, name); err != nil || there == text {
			return err
		}
	}
}

// jsonOf returns v as JSON; it is for values that always have a form.
func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("agent: %v", err))
	}
	return text
}
