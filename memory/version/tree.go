package version

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// changeID is what a change may be called, in maxName bytes.
var changeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+@-]*$`)

// maxReason bounds a reason, in bytes.
const maxReason = 16 << 10

// version returns the version that a change makes now.
func (t *Tree) version(c Change) (Version, error) {
	if c.ID != "" && (len(c.ID) > maxName || !changeID.MatchString(c.ID)) {
		return Version{}, fmt.Errorf("version: %q can't be the ID of a change", c.ID)
	}
	author := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || strings.ContainsRune("<>", r) {
			return -1
		}
		return r
	}, c.Author)
	if author = strings.TrimSpace(author); author == "" {
		author = "unknown"
	}
	reason := strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(c.Reason, "\uFFFD"))
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return Version{Time: t.store.opts.Now().Truncate(time.Second), Author: author,
		Reason: strings.TrimSpace(reason), Change: c.ID}, nil
}

// Commit records the files as they are. It returns the zero Version if they are as in the newest
// version, or if the change was made before.
func (t *Tree) Commit(ctx context.Context, c Change) (Version, error) {
	v, err := t.version(c)
	if err != nil {
		return Version{}, err
	}
	lock, err := t.lock(ctx)
	if err != nil {
		return Version{}, err
	}
	defer lock.Close()
	w, err := t.begin(ctx, lock, v.Time)
	if err != nil {
		return Version{}, fmt.Errorf("version: commit %s: %w", t.name, err)
	}
	if v.Change != "" {
		if done, err := t.Has(ctx, v.Change); done || err != nil {
			return Version{}, err
		}
	}
	v, _, err = t.commit(ctx, w, v)
	return v, err
}

// commit records the files, if they have changed, and returns what they are. The lock is held.
func (t *Tree) commit(ctx context.Context, w backend, v Version) (Version, snapshot, error) {
	before, err := t.newest(ctx, w)
	if err != nil {
		return Version{}, nil, err
	}
	now, err := t.read(ctx, before)
	if err != nil || maps.Equal(before, now) {
		return Version{}, now, err
	}
	if v, err = w.commit(ctx, now, v); err != nil {
		return Version{}, nil, fmt.Errorf("version: commit %s: %w", t.name, err)
	}
	return v, now, nil
}

// newest returns the files of the newest version.
func (t *Tree) newest(ctx context.Context, w backend) (snapshot, error) {
	list, err := w.log(ctx, "", 1)
	if err != nil || len(list) == 0 {
		return snapshot{}, err
	}
	s, err := w.files(ctx, list[0].ID)
	if err != nil {
		return nil, fmt.Errorf("version: read %s: %w", t.name, err)
	}
	return s, nil
}

// follows begins the ID of a version that goes on where the other back-end has ended. Nobody's
// change can be called so, and such a version can't be undone.
const (
	follows     = "=follows:"
	startReason = "The state with which this history goes on from another one."
)

// begin returns the back-end for new versions. Its newest version is the newest of all that can be
// read. The lock is held.
func (t *Tree) begin(ctx context.Context, lock *os.File, now time.Time) (backend, error) {
	w := t.writer(lock)
	if err := w.prepare(ctx); err != nil {
		return nil, err
	}
	last, state, err := t.other(ctx, w)
	if err != nil || last == "" {
		return w, err
	}
	known, err := w.find(ctx, follows+last)
	if err != nil || known.ID != "" {
		return w, err
	}
	_, err = w.commit(ctx, state, Version{
		Time: now, Author: "the gateway", Reason: startReason, Change: follows + last})
	return w, err
}

// other returns the last version of what doesn't write now, "" for none, and its files; of a
// repository that can't be read, for want of git or because it is damaged, those of now.
func (t *Tree) other(ctx context.Context, w backend) (last string, s snapshot, err error) {
	if t.Kind() == "git" {
		old := &plainStore{dir: t.path(".versions")}
		list, err := old.log(ctx, "", 1)
		if err != nil {
			return "", nil, err
		}
		if len(list) > 0 {
			s, err := old.files(ctx, list[0].ID)
			return list[0].ID, s, err
		}
	}
	if last, err = t.unreadable(ctx, w); err != nil || last == "" {
		return "", nil, err
	}
	before, err := t.newest(ctx, w)
	if err != nil {
		return "", nil, err
	}
	s, err = t.read(ctx, before)
	return last, s, err
}

// unreadable returns a name for the repository that went on before and can't be read, or "".
func (t *Tree) unreadable(ctx context.Context, w backend) (string, error) {
	if t.Kind() == "git" {
		ids, err := w.ids(ctx)
		if err != nil || len(ids) > 0 {
			return "", err
		}
		damaged, err := filepath.Glob(t.path(".git.damaged-*"))
		if err != nil || len(damaged) == 0 {
			return "", err
		}
		return filepath.Base(damaged[len(damaged)-1]), nil
	}
	text, err := os.ReadFile(filepath.Join(t.path(".git"), filepath.FromSlash(branch)))
	if !errors.Is(err, os.ErrNotExist) {
		return strings.TrimSpace(string(text)), err
	}
	if _, err := os.Stat(t.path(".git")); err == nil {
		return "packed", nil
	}
	return "", nil
}

// Log returns the newest n versions, the newest first; all if n is 0.
func (t *Tree) Log(ctx context.Context, n int) ([]Version, error) {
	var all []Version
	readers := t.readers()
	for _, b := range readers {
		list, err := b.log(ctx, "", n)
		if err != nil {
			return nil, fmt.Errorf("version: log of %s: %w", t.name, err)
		}
		all = append(all, list...)
	}
	if len(readers) > 1 { // else they are in order, whatever the clock has done
		slices.SortStableFunc(all, func(a, b Version) int { return b.Time.Compare(a.Time) })
	}
	if n > 0 && len(all) > n {
		all = all[:n]
	}
	return all, nil
}

// Has reports whether the history has a change with an ID.
func (t *Tree) Has(ctx context.Context, change string) (bool, error) {
	if len(change) > maxName || !changeID.MatchString(change) {
		return false, nil
	}
	for _, b := range t.readers() {
		v, err := b.find(ctx, change)
		if err != nil {
			return false, fmt.Errorf("version: look in %s: %w", t.name, err)
		}
		if v.ID != "" {
			return true, nil
		}
	}
	return false, nil
}

// A found is a version with the files before it and after it.
type found struct {
	Version
	before, after snapshot
}

// hexID is what may name a version.
var hexID = regexp.MustCompile(`^[0-9a-f]{6,64}$`)

// find returns the version that id names.
func (t *Tree) find(ctx context.Context, id string) (found, error) {
	if !hexID.MatchString(strings.ToLower(id)) {
		return found{}, fmt.Errorf("version: %q: %w: want six or more of its digits, such as 3f9a01",
			id, ErrUnknown)
	}
	var in backend
	var full string
	for _, b := range t.readers() {
		ids, err := b.ids(ctx)
		if err != nil {
			return found{}, fmt.Errorf("version: look in %s: %w", t.name, err)
		}
		for _, other := range ids {
			if !strings.HasPrefix(other, strings.ToLower(id)) {
				continue
			}
			if in != nil {
				return found{}, fmt.Errorf("version: %q: %w", id, ErrAmbiguous)
			}
			in, full = b, other
		}
	}
	if in == nil {
		return found{}, fmt.Errorf("version: %q: %w", id, ErrUnknown)
	}
	f, err := load(ctx, in, full)
	if err != nil {
		return found{}, fmt.Errorf("version: read %s: %w", full, err)
	}
	return f, nil
}

func load(ctx context.Context, b backend, id string) (f found, err error) {
	list, err := b.log(ctx, id, 2)
	if err != nil || len(list) == 0 {
		return f, errors.Join(err, ErrUnknown)
	}
	f.Version = list[0]
	if f.after, err = b.files(ctx, id); err == nil && len(list) > 1 {
		f.before, err = b.files(ctx, list[1].ID)
	}
	return f, err
}

// Show returns what a version is, why it was made and what it changed, as text.
func (t *Tree) Show(ctx context.Context, id string) (string, error) {
	f, err := t.find(ctx, id)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("version %s\nby %s, %s\n", f.ID, f.Author, f.Time.Format(time.DateTime))
	if f.Reason != "" {
		text += "\n    " + strings.ReplaceAll(f.Reason, "\n", "\n    ") + "\n"
	}
	return text + "\n" + diff(f.before, f.after), nil
}

// Diff returns what a version changed, as a unified diff.
func (t *Tree) Diff(ctx context.Context, id string) (string, error) {
	f, err := t.find(ctx, id)
	return diff(f.before, f.after), err
}

// Undo takes back what a version changed, keeps what was changed since, and records that; what
// was not recorded yet becomes a version of its own before. It returns the zero Version if there
// is nothing left of the change. If lines were changed again since, nothing is done and the error
// is a [*ConflictError].
func (t *Tree) Undo(ctx context.Context, id string, c Change) (Version, error) {
	v, err := t.version(c)
	if err != nil {
		return Version{}, err
	}
	lock, err := t.lock(ctx)
	if err != nil {
		return Version{}, err
	}
	defer lock.Close()
	w, err := t.begin(ctx, lock, v.Time)
	if err != nil {
		return Version{}, fmt.Errorf("version: undo in %s: %w", t.name, err)
	}
	if v.Change != "" {
		if done, err := t.Has(ctx, v.Change); done || err != nil {
			return Version{}, err
		}
	}
	f, err := t.find(ctx, id)
	if err != nil {
		return Version{}, err
	}
	if strings.HasPrefix(f.Change, follows) {
		return Version{}, fmt.Errorf("version: undo %s: it is a beginning, and changed nothing", f.ID)
	}
	byHand := Version{Time: v.Time, Author: "a person", Reason: "Edited by hand."}
	_, ours, err := t.commit(ctx, w, byHand)
	if err != nil {
		return Version{}, err
	}
	s, err := f.undone(ours)
	if err != nil || maps.Equal(ours, s) {
		return Version{}, err
	}
	if err := t.replace(ours, s); err != nil {
		return Version{}, err
	}
	v, _, err = t.commit(ctx, w, v)
	return v, err
}

// undone returns ours without what the version changed.
func (f *found) undone(ours snapshot) (snapshot, error) {
	s := maps.Clone(ours)
	conflict := &ConflictError{Version: f.ID}
	for _, name := range changed(f.before, f.after) {
		old, was := f.before[name]
		text, is := f.after[name]
		now, there := ours[name]
		merged, conflicts := Merge3(text, now, old)
		switch {
		case !there && is: // it was removed since, and with it what the version had changed
		case len(conflicts) > 0:
			conflict.Files = append(conflict.Files, FileConflict{name, conflicts})
		case !was && strings.TrimSpace(merged) == "":
			delete(s, name)
		default:
			s[name] = merged
		}
	}
	if len(conflict.Files) > 0 {
		return nil, conflict
	}
	return s, nil
}

// Remove deletes the whole history.
func (t *Tree) Remove(ctx context.Context) error {
	lock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	damaged, err := filepath.Glob(t.path(".git.damaged-*"))
	paths := []string{t.path(".git"), t.path(".git.new"), t.path(".versions")}
	for _, p := range append(paths, damaged...) {
		err = errors.Join(err, os.RemoveAll(p))
	}
	if err == nil {
		_ = os.Remove(t.path(".lock")) // not on systems where nothing that is open goes; it is empty
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return fmt.Errorf("version: remove %s: %w", t.name, err)
	}
	return nil
}
