package background

import (
	"context"
	"fmt"

	"gateway/memory/version"
)

// An Undoer undoes one change of the documents, for the kind [Undo]. The state of the task is the
// id of the version.
type Undoer struct{ *Versions }

// Do answers /dream-restore.
func (u Undoer) Do(ctx context.Context, t *Task) (o Outcome, err error) {
	o.Text, err = u.undo(ctx, t)
	return o, err
}

func (u Undoer) undo(ctx context.Context, t *Task) (string, error) {
	if u.Documents == nil {
		return "There are no documents.", nil
	}
	id := string(t.State)
	tree := u.Tree(t.Scope)
	_, err := tree.Commit(ctx, ByHand)
	if err != nil {
		return "", err
	}
	v, err := tree.Undo(ctx, id, version.Change{Author: "a person",
		Reason: "Takes back " + id + ".", ID: fmt.Sprintf("undo-%d", t.ID)})
	if err != nil {
		return versionErrorText(err)
	}
	if v.ID == "" {
		return "Nothing of that change is left to undo.", nil
	}
	return fmt.Sprintf("I have undone `%s`; that is `%s` in `/dream-log`.", id, short(v.ID)), nil
}
