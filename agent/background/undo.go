package background

import (
	"context"
	"fmt"

	"gateway/memory/version"
)

// An Undoer takes one change of the documents back, for the kind [Undo]. The state of the task is
// the version.
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
	_, err := tree.Commit(ctx, version.Change{Author: "a person", Reason: "Edited by hand."})
	if err != nil {
		return "", err
	}
	v, err := tree.Undo(ctx, id, version.Change{Author: "a person",
		Reason: "Takes back " + id + ".", ID: fmt.Sprintf("undo-%d", t.ID)})
	if err != nil {
		return sayVersion(err)
	}
	if v.ID == "" {
		return "There is nothing left of that change.", nil
	}
	return fmt.Sprintf("I have taken `%s` back; that is `%s` in `/dream-log`.", id, short(v.ID)), nil
}
