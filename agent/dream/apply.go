package dream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/store"
	"gateway/store/fault"
	"gateway/store/plaintext"
)

// Authors of changes.
const (
	author = "Dream"
	person = "a person"
)

// apply is the third phase: it writes the new texts to the documents, as one version. Each
// step can be repeated safely.
func (r *run) apply(ctx context.Context) (version.Version, error) {
	if len(r.state.Plan) == 0 {
		return version.Version{}, nil
	}
	versions := r.deps.Versions(r.scope)
	has, err := versions.Has(ctx, r.state.ID)
	if err != nil {
		return version.Version{}, err
	}
	if has {
		return r.made(ctx, versions)
	}
	if r.state.Phase != written {
		if err := r.write(ctx, versions); err != nil {
			return version.Version{}, err
		}
		r.state.Phase = written
		if err := r.save(ctx); err != nil {
			return version.Version{}, err
		}
		fault.Point("applied")
	}
	if len(r.state.changes()) == 0 { // all changes were in conflict, or people made them first
		return version.Version{}, nil
	}
	v, err := versions.Commit(ctx, version.Change{
		Author: author, Reason: r.state.reason(), ID: r.state.ID,
	})
	if err != nil {
		return version.Version{}, err
	}
	fault.Point("committed")
	return v, nil
}

// made returns the version that an earlier process has recorded.
func (r *run) made(ctx context.Context, versions Versions) (version.Version, error) {
	list, err := versions.Log(ctx, maxLog)
	i := slices.IndexFunc(list, func(v version.Version) bool { return v.Change == r.state.ID })
	if err != nil || i < 0 {
		return version.Version{}, err
	}
	return list[i], nil
}

// maxLog is the number of versions that are searched for one recorded before a restart.
const maxLog = 100

// maxTries limits how often the documents are merged again because a person edits them at
// the same time.
const maxTries = 5

// write writes the plan to the documents.
func (r *run) write(ctx context.Context, versions Versions) error {
	mine, err := r.written() // parts of the plan may be in the documents already
	if err != nil {
		return err
	}
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !mine { // keep people's changes out of Dream's version
			_, err := versions.Commit(ctx, version.Change{Author: person, Reason: "Edited by hand."})
			if err != nil {
				return err
			}
		}
		if err := r.merge(); err != nil {
			return err
		}
		r.state.Writing = true
		if err := r.save(ctx); err != nil { // save the plan before writing it
			return err
		}
		n, err := r.put()
		mine = mine || n > 0
		if !errors.Is(err, document.ErrChanged) && !errors.Is(err, document.ErrExists) {
			return err
		}
	}
	return errors.New("somebody keeps editing the documents")
}

// written reports whether an earlier process may have written parts of the plan to the
// documents.
func (r *run) written() (bool, error) {
	if !r.state.Writing {
		return false, nil
	}
	for _, f := range r.state.Plan {
		_, hash, err := r.deps.Documents.Read(r.scope, f.Name)
		if err != nil || hash != f.Hash {
			return true, err
		}
	}
	return false, nil
}

// merge merges the plan with the changes that people have made since the documents were
// read.
func (r *run) merge() error {
	var plan []file
	for _, f := range r.state.Plan {
		text, hash, err := r.deps.Documents.Read(r.scope, f.Name)
		if err != nil {
			return err
		}
		switch {
		case hash != "" && text == f.Text, hash == f.Hash: // already written, or unchanged
		case f.New:
			r.state.skip("%s: somebody has made one meanwhile", f.changes()[0])
			continue
		default:
			merged, conflicts := version.Merge3(f.Base, text, f.Text)
			over := len(merged) > r.opts.MaxDocument && len(merged) > len(text)
			if len(conflicts) > 0 || over {
				why := "somebody has changed the same lines meanwhile"
				if over {
					why = "it would be too long with what somebody has written meanwhile"
				}
				for _, change := range f.changes() {
					r.state.skip("%s: %s", change, why)
				}
				continue
			}
			f.Base, f.Hash, f.Text = text, hash, merged
		}
		plan = append(plan, f)
	}
	r.state.Plan = plan
	return nil
}

// put writes the files that are not written yet, and returns their number.
func (r *run) put() (n int, err error) {
	for _, f := range r.state.Plan {
		if f.Text == f.Base {
			continue // a person has made the same change
		}
		text, _, err := r.deps.Documents.Read(r.scope, f.Name)
		if err == nil && text != f.Text {
			if f.New {
				err = r.deps.Documents.Create(r.scope, f.Name, f.Text)
			} else {
				err = r.deps.Documents.Save(r.scope, f.Name, f.Text, f.Hash)
			}
			if err == nil {
				n++
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// advance moves the cursor. It returns false if the history was erased in the meantime:
// then nothing may be remembered.
func (r *run) advance(ctx context.Context) (bool, error) {
	history := r.deps.History(r.scope)
	there := false
	err := r.deps.DB.Tx(ctx, func(tx *store.Tx) error {
		var err error
		if there, err = r.there(tx); err != nil || !there {
			return err
		}
		dreamed, err := history.Dreamed(tx)
		if err != nil || dreamed >= r.state.To {
			return err
		}
		return history.SetDreamed(tx, r.state.To)
	})
	return there, err
}

// changes describes the changes of the file, one line each.
func (f file) changes() []string {
	if f.New {
		name := strings.TrimSuffix(strings.TrimPrefix(f.Name, "skills/"), "/SKILL.md")
		return []string{"new skill " + name}
	}
	base, now := contentLines(clean(f.Base)), contentLines(clean(f.Text))
	var list []string
	for _, line := range difference(base, now) {
		list = append(list, fmt.Sprintf("%s: removed %q", f.Name, inWords(line)))
	}
	for _, line := range difference(now, base) {
		list = append(list, fmt.Sprintf("%s: added %q", f.Name, inWords(line)))
	}
	if len(list) == 0 && f.Text != f.Base {
		list = []string{f.Name + ": other white space, or another order"}
	}
	return list
}

// maxWords is the part of a line that is shown in a report, in bytes.
const maxWords = 300

func inWords(line string) string {
	line = strings.TrimLeft(line, "-*+ ")
	return plaintext.Clip(line, maxWords)
}
