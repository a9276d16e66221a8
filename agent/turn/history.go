package turn

import (
	"context"
	"sync/atomic"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/bus"
	"gateway/memory"
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
func (t *conversation) load(ctx context.Context) error {
	system, err := t.loadParts(ctx)
	if err != nil {
		return err
	}
	t.system = t.env.Prompts.Text(system)
	return nil
}

// loadParts reads the transcript, and returns what the system prompt is made of.
func (t *conversation) loadParts(ctx context.Context) (system *prompt.System, err error) {
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	if t.First { // there is nothing but what begin has written
		return t.systemParts(read, session.Summary{})
	}
	h, err := t.env.Transcripts.read(read, t.env.sessions, t.Session, t.readLimit())
	if err != nil {
		return nil, err
	}
	// Read after the transcript: what becomes notes in between is there twice, and not missing.
	var summary session.Summary
	if h.Start > 0 {
		if summary, err = t.env.sessions.Summary(read, t.Session); err != nil {
			return nil, err
		}
	}
	if system, err = t.systemParts(read, summary); err != nil {
		return nil, err
	}
	t.truncated, t.older = h.Truncated, 0
	if h.Truncated && h.Entries[0].Turn == t.ID {
		// It is too long by itself, but its question must not be missing.
		t.history, err = t.env.sessions.TurnMessages(read, &t.Turn)
		return system, err
	}
	t.history = make([]llm.Message, 0, len(h.Entries)+8)
	for _, e := range h.Entries {
		if e.Turn != t.ID {
			t.older++
		}
		t.history = append(t.history, e.Message)
	}
	return system, nil
}

// Measure returns what the prompt of a turn would be made of that answers the sender of m, beside
// what it would say itself.
func Measure(
	ctx context.Context, env *Env, s *Settings, key session.Key, m bus.InboundMessage,
) ([]prompt.Content, error) {
	var t conversation
	t.turn = turn{env: env, settings: s, trigger: m, role: m.Role, sender: m.Sender, person: m.Person}
	t.Session, t.Address, t.Scope = key, m.From, memory.ScopeOf(m)
	t.tools = t.toolsFor(m.Role)
	if m.Group {
		t.group, t.chatTitle = true, m.ChatTitle
		t.title = prompt.Name(m.ChatTitle, "without a title")
	}
	if err := t.findZone(ctx); err != nil {
		return nil, err
	}
	system, err := t.loadParts(ctx)
	if err != nil {
		return nil, err
	}
	t.system = env.Prompts.Text(system)
	return prompt.Contents(system.Parts(), t.tools.Specs(),
		prompt.Prepare(t.tools.Offered(t.history), t.historySize())), nil
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
