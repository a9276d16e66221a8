package turn

import (
	"context"
	"sync/atomic"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/session"
)

// A conversation is what the model knows in a turn: the system prompt and the transcript from where
// the prompt begins.
type conversation struct {
	preview
	system     string // system prompt
	history    []llm.Message
	older      int  // how many of them are of earlier turns
	truncated  bool // there is more of the transcript than the history has
	prompt     int  // tokens of the newest prompt and its answer, as the model says
	provenance atomic.Pointer[provenance]
}

// historySize is how many bytes of transcript fit into a prompt beside the system prompt and the
// tools.
func (t *conversation) historySize() int {
	size := t.env.Calls.Estimates.Bytes(t.settings.ModelID, t.settings.ContextBudget())
	return max(size-t.bareSize(), LeastHistory)
}

// bareSize is how many bytes a prompt has besides the transcript.
func (t *conversation) bareSize() int {
	return prompt.TextSize([]llm.Message{{Text: t.system}}) + prompt.ToolsSize(t.tools.Specs())
}

// readLimit is how many bytes of a transcript are read for a prompt. Anything beyond should become
// notes first.
func (t *conversation) readLimit() int {
	return 2 * t.env.Calls.Estimates.Bytes(t.settings.ModelID, t.settings.ContextBudget())
}

// LeastHistory is how many bytes of transcript a prompt has at least.
const LeastHistory = 4096

// restore reads the transcript, which contains the turn's own messages by now, builds the system
// prompt, and makes both fit.
func (t *conversation) restore(ctx context.Context) error {
	if err := t.load(ctx); err != nil {
		return err
	}
	return t.fit(ctx, false)
}

// load reads the transcript and builds the system prompt.
func (t *conversation) load(ctx context.Context) (err error) {
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	if t.First { // there is nothing but what begin has written
		t.system, err = t.systemPrompt(read, session.Summary{})
		return err
	}
	h, err := t.env.Transcripts.read(read, t.env.sessions, t.Session, t.readLimit())
	if err != nil {
		return err
	}
	// Read after the transcript: what becomes notes in between is there twice, and not missing.
	var summary session.Summary
	if h.Start > 0 {
		if summary, err = t.env.sessions.Summary(read, t.Session); err != nil {
			return err
		}
	}
	if t.system, err = t.systemPrompt(read, summary); err != nil {
		return err
	}
	t.truncated, t.older = h.Truncated, 0
	if h.Truncated && h.Entries[0].Turn == t.ID {
		// It is too long by itself, but its question must not be missing.
		t.history, err = t.env.sessions.TurnMessages(read, &t.Turn)
		return err
	}
	t.history = make([]llm.Message, 0, len(h.Entries)+8)
	for _, e := range h.Entries {
		if e.Turn != t.ID {
			t.older++
		}
		t.history = append(t.history, e.Message)
	}
	return nil
}

// shorten makes the prompt smaller after the model has found it too long: notes take the place of
// the older half of the conversation, or, where there is no such half, the tool results are cut.
func (t *conversation) shorten(ctx context.Context) error {
	t.env.Calls.Estimates.Exceeded(t.settings.ModelID, t.settings.ContextWindow,
		t.bareSize()+prompt.TextSize(t.history))
	before := len(t.history)
	if err := t.fit(ctx, true); err != nil {
		return err
	}
	if len(t.history) >= before {
		prompt.ShrinkResults(t.history, prompt.ShrunkResult)
	}
	return nil
}
