package turn

import (
	"context"
	"errors"
	"math"

	"gateway/agent/activity"
	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/session"
	"gateway/store"
)

// Notes replace the older part of a conversation when it does not fit into the prompt, when the
// conversation is idle, and when somebody asks for it. The notes go into the history of the scope
// and into the summary of the session. The messages stay in the transcript and can be searched. One
// transaction writes the notes and moves the start of the session, so that no part is noted twice,
// even by concurrent work.

// MaxCompactions is the maximum number of compactions before one turn.
const MaxCompactions = 5

// fit makes the prompt fit: notes replace the oldest messages until the prompt has half its budget.
// If notes can't be made, the oldest messages are left out. Unless force is set, fit does nothing
// if the prompt fits.
func (t *conversation) fit(ctx context.Context, force bool) error {
	err := t.makeRoom(ctx, force)
	t.cut()
	return err
}

// makeRoom compacts until the prompt fits or nothing is left to compact.
func (t *conversation) makeRoom(ctx context.Context, force bool) error {
	most, aim := t.room()
	enough := most
	for range MaxCompactions {
		size := t.size()
		if size <= enough && !t.truncated && !force {
			return nil
		}
		need := t.env.Calls.Estimates.Bytes(t.settings.ModelID, size-aim)
		if force {
			need = max(need, prompt.TextSize(t.history)/2)
		}
		if t.truncated {
			need = math.MaxInt
		}
		moved, err := t.compactOlder(ctx, need)
		if err != nil || !moved {
			return err
		}
		t.loadKnowledge()
		if err := t.load(ctx); err != nil {
			return err
		}
		enough, force = aim, false
	}
	return nil
}

// room returns the maximum size of a prompt and the size to aim for after compaction, in tokens.
// The aim is half the maximum. If the system prompt and the tools almost fill that half, the aim
// leaves half of the remaining budget to the conversation. Otherwise every message would need new
// notes.
func (t *conversation) room() (most, aim int) {
	budget := t.settings.ContextBudget()
	bare := t.baseSize()
	with := func(n int) int { return t.env.Calls.Estimates.Tokens(t.settings.ModelID, bare+n) }
	most, aim = max(budget-1, with(LeastHistory)), budget/2
	if with(LeastHistory/2) > aim {
		aim = (with(0) + most) / 2
	}
	return most, aim
}

// cut leaves the oldest turns out of a prompt that is still too large because some notes could not
// be made. The turns are not lost: they stay after the session's start.
func (t *conversation) cut() {
	if most, _ := t.room(); t.size() <= most {
		return
	}
	from, size := t.older, prompt.TextSize(t.history[t.older:])
	for i := from - 1; i >= 0; i-- {
		if size += prompt.TextSize(t.history[i : i+1]); size > t.historySize() {
			break
		}
		if t.history[i].Role == llm.User {
			from = i
		}
	}
	if from > 0 {
		t.history, t.older, t.truncated = t.history[from:], t.older-from, true
	}
}

// size estimates the size of the turn's next prompt in tokens.
func (t *conversation) size() int {
	bytes := t.baseSize() + prompt.TextSize(t.history)
	return t.env.Calls.Estimates.Tokens(t.settings.ModelID, bytes)
}

// compactOlder makes notes of about need bytes of the oldest part of the conversation. It reports
// whether there was such a part. It does not touch messages of this turn.
func (t *conversation) compactOlder(ctx context.Context, need int) (bool, error) {
	if t.Scope == "" {
		return false, nil
	}
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	first, err := session.TurnStart(read, &t.Turn)
	if err != nil {
		return false, err
	}
	before, err := session.ReadSummary(read, t.Session)
	if err != nil {
		return false, err
	}
	entries, err := t.env.Summarizer.Part(read, t.Session, before.Start, first-1, need)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	if t.settings.Activity != activity.Off {
		t.preview.show(t.preview.partial, "📝 making notes")
	}
	moved, err := t.env.Summarizer.Compact(ctx, t.Session, before, entries, t.costs.spender(),
		background.NotesNow)
	if ctx.Err() != nil || errors.Is(err, policy.ErrHalted) || modelcall.IsSpent(err) {
		return false, nil // the next model call returns the error
	}
	return moved, err
}

// excess reports whether the next prompt is too large. state is where its compaction begins, or nil
// if the handler finds that in the transcript.
func (t *conversation) excess() (state []byte, tooLarge bool) {
	if t.truncated {
		return nil, true
	}
	if t.alone { // notes of the earlier turns can take their place
		return background.CompactState(math.MaxInt), true
	}
	size := max(t.prompt, t.size())
	most, aim := t.room()
	need := t.env.Calls.Estimates.Bytes(t.settings.ModelID, size-aim)
	return background.CompactState(need), size > most
}

// addCompaction adds a background task that makes notes if the prompt has become too large, so that
// the next turn need not wait for them. It reports whether it added one.
func (t *runner) addCompaction(tx *store.Tx) (bool, error) {
	state, tooLarge := t.conv.excess()
	if t.isTask() || t.Scope == "" || !tooLarge {
		return false, nil
	}
	return true, t.env.Background.Add(tx, background.Task{Work: background.Work{
		Kind: background.Compact, Scope: t.Scope, Session: t.Session.String()}, State: state})
}
