package background

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// An Archiver makes notes of the end of a closed conversation, for the kind [Archive].
type Archiver struct{ *Summarizer }

// archived is the progress of an [Archiver].
type archived struct {
	From int64 `json:"from"` // id of the message before the first one to note
	To   int64 `json:"to"`   // id of the last message to note
}

// Add adds a task that makes notes of the messages after a session's start. Call it before the
// start moves.
func (a Archiver) Add(tx *store.Tx, key session.Key) error {
	s, err := session.ReadSummary(tx, key)
	if err != nil || s.Scope == "" {
		return err
	}
	last, err := session.NewestMessage(tx, key)
	if err != nil || last <= s.Start {
		return err
	}
	work := Work{Kind: Archive, Scope: s.Scope, Session: key.String(), Ref: s.Start}
	return a.tasks.Put(tx, Task{Work: work, State: jsonOf(archived{s.Start, last})}, a.Now())
}

// Do makes notes of the end of a closed conversation. One transaction writes the notes of a part
// and the progress. After some parts Do returns, so that other tasks can run.
func (a Archiver) Do(ctx context.Context, t *Task) (o Outcome, err error) {
	var done archived
	if err := json.Unmarshal(t.State, &done); err != nil {
		return o, fmt.Errorf("background: archive %s: %w", t.Session, err)
	}
	key, ok, err := session.Named(a.DB.Read(context.WithoutCancel(ctx)), t.Session)
	if err != nil || !ok {
		return o, err
	}
	for range maxParts {
		read := a.DB.Read(context.WithoutCancel(ctx))
		entries, err := a.Part(read, key, done.From, done.To, math.MaxInt)
		if err != nil || len(entries) == 0 {
			return o, err
		}
		notes, err := a.notes(ctx, spenderOf(t.Scope, key), entries, t.Attempts)
		if err != nil {
			return o, err
		}
		done.From = entries[len(entries)-1].ID
		fault.Point("noted")
		err = commit(ctx, a.DB, func(tx *store.Tx) error {
			if err := a.tasks.Save(tx, t, jsonOf(done)); err != nil {
				return err
			}
			_, err := a.keep(tx, t.Scope, key, notes, entries)
			return err
		})
		if err != nil {
			return o, err
		}
		fault.Point("archived")
		a.sync(ctx, t.Scope)
	}
	return Outcome{ContinueAt: a.Now(), State: jsonOf(done)}, nil
}
