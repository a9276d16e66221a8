package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"gateway/store"
	"gateway/store/plaintext"
)

// changeID matches the IDs of changes, which also have at most maxName bytes.
var changeID = plaintext.Pattern(`^[A-Za-z0-9][A-Za-z0-9._:/+@-]*$`)

// maxReason bounds a reason, in bytes.
const maxReason = 16 << 10

// version returns a Version for a change that is made now.
func (t *Tree) version(c Change) (Version, error) {
	if c.ID != "" && (len(c.ID) > maxName || !changeID().MatchString(c.ID)) {
		return Version{}, fmt.Errorf("version: %q can't be the ID of a change", c.ID)
	}
	// The author is written into the line of a commit, where these characters have a meaning.
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
	return Version{Time: t.store.opts.Now().Truncate(time.Second), Author: author,
		Reason: strings.TrimSpace(plaintext.Cut(reason, maxReason)), Change: c.ID}, nil
}

// Commit records the current files. It returns the zero Version if they equal the newest
// version, or if the change was recorded before.
func (t *Tree) Commit(ctx context.Context, c Change) (Version, error) {
	v, err := t.version(c)
	if err != nil {
		return Version{}, err
	}
	v, _, err = t.commit(ctx, v)
	return v, err
}

// maxTries limits how often a commit is retried because another one came first.
const maxTries = 20

// commit records the files, if they have changed, and returns their content.
func (t *Tree) commit(ctx context.Context, v Version) (Version, snapshot, error) {
	// A transaction must do nothing but database work. So the files are read before it, and again
	// if another version was added meanwhile.
	for range maxTries {
		read := t.store.db.Read(ctx)
		last, err := t.newest(read)
		if err != nil {
			return Version{}, nil, err
		}
		before, err := t.state(read, last)
		if err != nil {
			return Version{}, nil, err
		}
		now, err := t.read(ctx, before)
		if err != nil || maps.Equal(before, now) {
			return Version{}, now, err
		}
		var done Version
		err = t.store.db.Tx(ctx, func(tx *store.Tx) error {
			// The function may run more than once, see [store.DB.Tx].
			done = Version{}
			if newest, err := t.newest(tx); err != nil || newest != last {
				return cmp.Or(err, errBusy)
			}
			if v.Change != "" {
				if made, err := t.has(tx, v.Change); made || err != nil {
					return err
				}
			}
			done, err = t.insert(tx, last, before, now, v)
			return err
		})
		if !errors.Is(err, errBusy) {
			return done, now, err
		}
	}
	return Version{}, nil, fmt.Errorf("version: commit %s: %w", t.name, errBusy)
}

// Log returns the newest n versions, the newest first; all if n is 0.
func (t *Tree) Log(ctx context.Context, n int) ([]Version, error) {
	if n <= 0 {
		n = math.MaxInt32
	}
	rows, err := t.rows(t.store.db.Read(ctx), " ORDER BY id DESC LIMIT $2", n)
	list := make([]Version, len(rows))
	for i, r := range rows {
		list[i] = r.Version
	}
	return list, err
}

// Has reports whether the history has a change with an ID.
func (t *Tree) Has(ctx context.Context, change string) (bool, error) {
	if change == "" {
		return false, nil
	}
	return t.has(t.store.db.Read(ctx), change)
}

// found is a version with the files before and after it.
type found struct {
	Version
	before, after snapshot
}

// hexDigits matches the digits of an ID, which has six or more.
var hexDigits = plaintext.Pattern(`^[0-9a-f]+$`)

// find returns the version with an ID, or with an ID that begins with id.
func (t *Tree) find(ctx context.Context, id string) (found, error) {
	id = strings.ToLower(id)
	if len(id) < 6 || !hexDigits().MatchString(id) {
		return found{}, fmt.Errorf("version: %q: %w: want six or more of its digits, such as 3f9a01",
			id, ErrUnknown)
	}
	read := t.store.db.Read(ctx)
	// IDs with the prefix id sort before id followed by "g", which is greater than every
	// hexadecimal digit.
	rows, err := t.rows(read, " AND name >= $2 AND name < $3 LIMIT 2", id, id+"g")
	switch {
	case err != nil:
		return found{}, err
	case len(rows) == 0:
		return found{}, fmt.Errorf("version: %q: %w", id, ErrUnknown)
	case len(rows) > 1:
		return found{}, fmt.Errorf("version: %q: %w", id, ErrAmbiguous)
	}
	f := found{Version: rows[0].Version}
	if f.before, err = t.state(read, rows[0].id-1); err == nil {
		f.after, err = t.state(read, rows[0].id)
	}
	return f, err
}

// Show returns a description of a version: its author, time, reason and diff.
func (t *Tree) Show(ctx context.Context, id string) (string, error) {
	f, err := t.find(ctx, id)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("version %s\nby %s, %s\n", f.ID, f.Author, f.Time.Format(time.DateTime))
	if f.Reason != "" {
		text += "\n    " + strings.ReplaceAll(f.Reason, "\n", "\n    ") + "\n"
	}
	changes, err := diff(f.before, f.after)
	return text + "\n" + changes, err
}

// Undo reverts the changes of a version, keeps later changes, and records the result.
// Unrecorded changes of the files are recorded first, as a version of their own. Undo
// returns the zero Version if nothing of the change is left. If the same lines were
// changed again since, Undo changes nothing and returns a [*ConflictError].
func (t *Tree) Undo(ctx context.Context, id string, c Change) (Version, error) {
	v, err := t.version(c)
	if err != nil {
		return Version{}, err
	}
	if done, err := t.Has(ctx, v.Change); done || err != nil {
		return Version{}, err
	}
	f, err := t.find(ctx, id)
	if err != nil {
		return Version{}, err
	}
	byHand := Version{Time: v.Time, Author: "a person", Reason: "Edited by hand."}
	_, ours, err := t.commit(ctx, byHand)
	if err != nil {
		return Version{}, err
	}
	s, err := f.undone(ours)
	if err != nil || maps.Equal(ours, s) {
		return Version{}, err
	}
	// If the process dies between these steps, the files are changed and the next commit records
	// that.
	if err := t.replace(ours, s); err != nil {
		return Version{}, err
	}
	v, _, err = t.commit(ctx, v)
	return v, err
}

// undone returns ours without the changes of the version.
func (f *found) undone(ours snapshot) (snapshot, error) {
	s := maps.Clone(ours)
	conflict := &ConflictError{Version: f.ID}
	for _, name := range changed(f.before, f.after) {
		old, was := f.before[name]
		text, is := f.after[name]
		now, there := ours[name]
		// The version is the base: what came later and what came before are both changes of it.
		merged, conflicts := Merge3(text, now, old)
		switch {
		case !there && is: // removed since, including the version's changes
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
	err := t.store.db.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("DELETE FROM version_files WHERE tree = $1", t.name)
		if err == nil {
			_, err = tx.Exec("DELETE FROM versions WHERE tree = $1", t.name)
		}
		return err
	})
	if err == nil && t.store.opts.Before != "" {
		err = t.removeBefore()
	}
	return store.Wrap(err, "version: remove %s", t.name)
}

// removeBefore deletes the files in which an earlier gateway kept the history.
func (t *Tree) removeBefore() error {
	base := filepath.Join(t.store.opts.Before, t.name)
	paths, err := filepath.Glob(base + ".git.damaged-*")
	for _, p := range append(paths, base+".git", base+".git.new", base+".versions", base+".lock") {
		err = errors.Join(err, os.RemoveAll(p))
	}
	return err
}
