package background

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"gateway/session"
	"gateway/store"
)

// A Compactor makes notes of the older part of a conversation, for the kinds [Compact] and [Idle].
type Compactor struct{ *Summarizer }

// keptMessages is the number of messages that stay in the prompt after the compaction of an idle
// conversation, or after /compact.
const keptMessages = 8

// compacted is the progress of a compaction.
type compacted struct {
	Noted int `json:"noted"` // number of messages compacted so far
	Need  int `json:"need"`  // bytes still to compact
}

// CompactState returns the state of a task that must make notes of the given number of bytes.
func CompactState(bytes int) []byte { return jsonOf(compacted{Need: bytes}) }

// Do makes notes of the older part of a conversation. It stops when the rest takes half the budget
// of a prompt. If the conversation is idle or somebody asked for it, it stops when a few messages
// are left. After some parts Do returns, so that other tasks can run.
func (c Compactor) Do(ctx context.Context, t *Task) (o Outcome, err error) {
	key, ok, err := session.Named(c.DB.Read(context.WithoutCancel(ctx)), t.Session)
	if err != nil || !ok {
		return Outcome{Text: compactedText(0)}, err
	}
	little := t.Kind == Compact && t.Notice == nil
	done := compacted{Need: math.MaxInt}
	switch {
	case t.State != nil:
		if err := json.Unmarshal(t.State, &done); err != nil {
			return o, fmt.Errorf("background: compact %s: %w", t.Session, err)
		}
	case little:
		if done.Need, err = c.excess(ctx, key); err != nil {
			return o, err
		}
	}
	for range maxParts {
		if done.Need <= 0 {
			return Outcome{Text: compactedText(done.Noted)}, nil
		}
		entries, err := c.part(ctx, t, key, little, done.Need)
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
	return Outcome{ContinueAt: c.Now(), State: jsonOf(done)}, nil
}

func compactedText(noted int) string {
	if noted == 0 {
		return "There is nothing to compact: this conversation is short."
	}
	return fmt.Sprintf("I have made notes of %s, which take their place. I can still search "+
		"the messages.", Count(noted, "older message"))
}

// excess returns how many bytes of a conversation must become notes so that its transcript takes
// half the budget.
func (c Compactor) excess(ctx context.Context, key session.Key) (int, error) {
	size, err := session.TranscriptSize(c.DB.Read(context.WithoutCancel(ctx)), key)
	model, tokens := c.Settings.Prompt(key)
	return size - c.Estimates.Bytes(model, tokens/2), err
}

// part makes notes of about need bytes of a conversation and returns the noted messages.
func (c Compactor) part(
	ctx context.Context, t *Task, key session.Key, little bool, need int,
) ([]session.Entry, error) {
	read := c.DB.Read(context.WithoutCancel(ctx))
	before, err := session.ReadSummary(read, key)
	if err != nil || before.Scope == "" {
		return nil, err
	}
	to, err := c.lastRemovable(read, key, little)
	if err != nil {
		return nil, err
	}
	entries, err := c.Part(read, key, before.Start, to, need)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	who := spenderOf(before.Scope, key)
	_, err = c.Compact(ctx, key, before, entries, who, t.Attempts)
	return entries, err
}

// lastRemovable returns the id of the newest message of a session that may become notes. At least
// one turn stays. A running turn stays whole. Unless little is set, more messages stay.
func (c Compactor) lastRemovable(q store.Queryer, key session.Key, little bool) (int64, error) {
	keep := keptMessages
	if little {
		keep = 2
	}
	first, err := session.KeepFrom(q, key, keep)
	if err != nil || first == 0 {
		return 0, err
	}
	t, err := session.RunningTurn(q, key)
	if err != nil || t == nil {
		return first - 1, err
	}
	start, err := session.TurnStart(q, t)
	if err != nil || start == 0 {
		return 0, err
	}
	return min(first, start) - 1, nil
}
