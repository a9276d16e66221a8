package turn

import (
	"context"
	"errors"
	"math"

	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/policy"
	"gateway/agent/prompt"
)

// What was said becomes notes when it does not fit into the prompt any more, when a conversation
// was left, and when somebody asks for it. The notes go into the history of the scope and into the
// summary of the session; the words themselves stay in the transcript and can be searched. The
// start of the session moves in the transaction that writes the notes, so that nothing is noted
// twice, whoever works on the same session.

// MaxCompactions is how many parts of a conversation become notes before one turn.
const MaxCompactions = 5

// fit makes the prompt fit: notes take the place of the oldest messages until it has half the
// budget. Where that is not to be had, those are left out. It does nothing while there is room, but
// for force.
func (t *conversation) fit(ctx context.Context, force bool) error {
	err := t.makeRoom(ctx, force)
	t.cut()
	return err
}

// makeRoom has notes made until the prompt fits or nothing more can go.
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
		if err := t.load(ctx); err != nil {
			return err
		}
		enough, force = aim, false
	}
	return nil
}

// room returns how many tokens a prompt may have, and how many it shall have once notes were made:
// half as many. Where the system prompt and the tools leave little of that, half of what they leave
// is for the conversation, or notes would be made of it with every message.
func (t *conversation) room() (most, aim int) {
	budget := t.settings.ContextBudget()
	bare := len(t.system) + prompt.ToolsSize(t.tools.Specs())
	with := func(n int) int { return t.env.Calls.Estimates.Tokens(t.settings.ModelID, bare+n) }
	most, aim = max(budget-1, with(LeastHistory)), budget/2
	if with(LeastHistory/2) > aim {
		aim = (with(0) + most) / 2
	}
	return most, aim
}

// cut leaves the oldest turns out of a prompt that is too large all the same, because no notes
// could be made, or not yet of all. They are not lost: the start of the session stays before them.
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

// size estimates how many tokens the next prompt of the turn has.
func (t *conversation) size() int {
	bytes := len(t.system) + prompt.TextSize(t.history) + prompt.ToolsSize(t.tools.Specs())
	return t.env.Calls.Estimates.Tokens(t.settings.ModelID, bytes)
}

// compactOlder makes notes of the oldest part of the conversation, of about need bytes, and reports
// whether there was one. Nothing of this turn goes.
func (t *conversation) compactOlder(ctx context.Context, need int) (bool, error) {
	if t.Scope == "" {
		return false, nil
	}
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	first, err := t.env.sessions.TurnStart(read, &t.Turn)
	if err != nil {
		return false, err
	}
	before, err := t.env.sessions.Summary(read, t.Session)
	if err != nil {
		return false, err
	}
	entries, err := t.env.Summarizer.Part(read, t.Session, before.Start, first-1, need)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	t.show(t.partial, "Making notes …")
	moved, err := t.env.Summarizer.Compact(ctx, t.Session, before, entries, t.spender(), true)
	if ctx.Err() != nil || errors.Is(err, policy.ErrHalted) || modelcall.IsSpent(err) {
		return false, nil // shows at the next model call, which ends the turn as is due
	}
	return moved, err
}

// excess reports whether the next prompt of the conversation is too large, and, unless the
// transcript tells that best, from what state its compaction begins.
func (t *conversation) excess() (state []byte, tooLarge bool) {
	if t.truncated {
		return nil, true
	}
	size := max(t.prompt, t.size())
	most, aim := t.room()
	need := t.env.Calls.Estimates.Bytes(t.settings.ModelID, size-aim)
	return background.Need(need), size > most
}
