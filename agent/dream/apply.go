package dream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/prompt"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/store"
	"gateway/store/fault"
)

// The authors of changes.
const (
	author = "Dream"
	person = "a person"
)

// apply is the third phase: the new texts take the place of the documents, in one version. Each of
// its steps can be done again.
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
	if len(r.changes()) == 0 { // all was in conflict, or done by somebody else
		return version.Version{}, nil
	}
	v, err := versions.Commit(ctx, version.Change{
		Author: author, Reason: r.reason(), ID: r.state.ID,
	})
	if err != nil {
		return version.Version{}, err
	}
	fault.Point("committed")
	return v, nil
}

// made returns the version that an earlier process has made.
func (r *run) made(ctx context.Context, versions Versions) (version.Version, error) {
	list, err := versions.Log(ctx, maxLog)
	i := slices.IndexFunc(list, func(v version.Version) bool { return v.Change == r.state.ID })
	if err != nil || i < 0 {
		return version.Version{}, err
	}
	return list[i], nil
}

// maxLog is how many versions are searched for one that was made before a restart.
const maxLog = 100

// maxTries is how often the documents are merged anew because somebody edits them at this moment.
const maxTries = 5

// write puts the plan into the documents.
func (r *run) write(ctx context.Context, versions Versions) error {
	mine, err := r.written() // something of the plan may be in the documents
	if err != nil {
		return err
	}
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !mine { // so that Dream's version holds nothing of theirs
			_, err := versions.Commit(ctx, version.Change{Author: person, Reason: "Edited by hand."})
			if err != nil {
				return err
			}
		}
		if err := r.merge(); err != nil {
			return err
		}
		r.state.Writing = true
		if err := r.save(ctx); err != nil { // what is written must be known before it is
			return err
		}
		n, err := r.put()
		mine = mine || n > 0
		if !errors.Is(err, document.ErrChanged) && !errors.Is(err, document.ErrExists) {
			return err
		}
	}
	return errors.New("somebody edits the documents all the time")
}

// written reports whether an earlier process may have put some of the plan into the documents.
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

// merge makes the plan fit what people have made of the documents since they were read.
func (r *run) merge() error {
	var plan []file
	for _, f := range r.state.Plan {
		text, hash, err := r.deps.Documents.Read(r.scope, f.Name)
		if err != nil {
			return err
		}
		switch {
		case hash != "" && text == f.Text, hash == f.Hash: // it is there, or nothing has changed
		case f.New:
			r.skip("%s: somebody has made one meanwhile", f.changes()[0])
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
					r.skip("%s: %s", change, why)
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

// put writes the files that are not there yet, and returns how many.
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

// advance moves the cursor. It reports false if the history has gone, because somebody had it
// erased: then there is nothing to remember.
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

// changes says in words what becomes of the file, a line each.
func (f file) changes() []string {
	if f.New {
		name := strings.TrimSuffix(strings.TrimPrefix(f.Name, "skills/"), "/SKILL.md")
		return []string{"new skill " + name}
	}
	base, now := contentLines(clean(f.Base)), contentLines(clean(f.Text))
	var list []string
	for _, line := range without(base, now) {
		list = append(list, fmt.Sprintf("%s: removed %q", f.Name, inWords(line)))
	}
	for _, line := range without(now, base) {
		list = append(list, fmt.Sprintf("%s: added %q", f.Name, inWords(line)))
	}
	if len(list) == 0 && f.Text != f.Base {
		list = []string{f.Name + ": other white space, or another order"}
	}
	return list
}

// maxWords is how much of a line is shown in a report, in bytes.
const maxWords = 300

func inWords(line string) string {
	line = strings.TrimLeft(line, "-*+ ")
	if len(line) > maxWords {
		line = prompt.Clip(line, maxWords) + "…"
	}
	return line
}

// reason says why the documents have changed, for their history.
func (r *run) reason() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Dream over the entries %d to %d", r.state.From+1, r.state.To)
	for _, change := range r.changes() {
		b.WriteString("\n" + change)
	}
	b.WriteString("\n\nNamed by the model:")
	for _, f := range r.state.Findings {
		b.WriteString("\n" + f.String())
	}
	return b.String()
}

// changes says in words what the run changes.
func (r *run) changes() []string {
	var list []string
	for _, f := range r.state.Plan {
		list = append(list, f.changes()...)
	}
	return list
}
