package background

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"gateway/session"
	"gateway/store"
)

// A Compactor summarises the older part of a conversation, for the kinds [Compact] and [Idle].
type Compactor struct{ *Summarizer }

// keptMessages is how many messages stay when a conversation is summarised because nobody writes,
// or because somebody has asked for it.
const keptMessages = 8

// compacted is how far a compaction has come.
type compacted struct {
	Noted int `json:"noted"` // messages
	Need  int `json:"need"`  // bytes that are still to become notes
}

// Need is the state of a task that has to make notes of so many bytes of a conversation.
func Need(bytes int) []byte { return jsonOf(compacted{Need: bytes}) }

// Do makes notes of the older part of a conversation: until the rest takes half the budget, or, if
// somebody has asked for it or nobody writes, until a few messages are left. After some parts other
// tasks have their turn.
func (c Compactor) Do(ctx context.Context, t *Task) (o Outcome, err error) {
	little := t.Kind == Compact && t.Tell == nil
	done := compacted{Need: math.MaxInt}
	switch {
	case t.State != nil:
		if err := json.Unmarshal(t.State, &done); err != nil {
			return o, fmt.Errorf("background: compact %s: %w", t.Session, err)
		}
	case little:
		if done.Need, err = c.excess(ctx, session.Key(t.Session)); err != nil {
			return o, err
		}
	}
	for range maxParts {
		if done.Need <= 0 {
			return Outcome{Text: sayCompacted(done.Noted)}, nil
		}
		entries, err := c.part(ctx, t, little, done.Need)
		if err != nil {
			return o, err
		}
		if len(entries) == 0 {
			done.Need = 0
		}
		done.Noted += len(entries)
		for _, e := range entries {
			done.Need -= e.Size
		}
	}
	return Outcome{Again: c.Now(), State: jsonOf(done)}, nil
}

func sayCompacted(noted int) string {
	if noted == 0 {
		return "There is nothing to compact: this conversation is short."
	}
	return fmt.Sprintf("I have made notes of %s, which take their place. I can still search what "+
		"was said.", Count(noted, "older message"))
}

// excess returns how many bytes of a conversation are to become notes so that its transcript takes
// half the budget.
func (c Compactor) excess(ctx context.Context, key session.Key) (int, error) {
	size, err := c.sessions.Size(c.DB.Read(context.WithoutCancel(ctx)), key)
	model, tokens := c.Settings.Prompt(key)
	return size - c.Estimates.Bytes(model, tokens/2), err
}

// part makes notes of about need bytes of a conversation and returns what became notes.
func (c Compactor) part(
	ctx context.Context, t *Task, little bool, need int,
) ([]session.Entry, error) {
	key := session.Key(t.Session)
	read := c.DB.Read(context.WithoutCancel(ctx))
	before, err := c.sessions.Summary(read, key)
	if err != nil || before.Scope == "" {
		return nil, err
	}
	to, err := c.keepTo(read, key, little)
	if err != nil {
		return nil, err
	}
	entries, err := c.Part(read, key, before.Start, to, need)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	who := spenderOf(before.Scope, key)
	_, err = c.Compact(ctx, key, before, entries, who, t.Attempts >= notesRetries)
	return entries, err
}

// keepTo returns the id of the newest message of a session that may become notes. One turn stays at
// least, and the whole of one that runs; unless little is to be kept, more.
func (c Compactor) keepTo(q store.Queryer, key session.Key, little bool) (int64, error) {
	keep := keptMessages
	if little {
		keep = 2
	}
	first, err := c.sessions.KeepFrom(q, key, keep)
	if err != nil || first == 0 {
		return 0, err
	}
	t, err := c.sessions.RunningTurn(q, key)
	if err != nil || t == nil {
		return first - 1, err
	}
	start, err := c.sessions.TurnStart(q, t)
	if err != nil || start == 0 {
		return 0, err
	}
	return min(first, start) - 1, nil
}
