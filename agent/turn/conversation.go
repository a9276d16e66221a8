package turn

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"gateway/agent/llm"
	"gateway/agent/persona"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
	"gateway/store/fault"
)

// A conversation is the context of the model in a turn: the system prompt, and the transcript from
// the start of the session.
type conversation struct {
	*turn
	costs   *costs
	preview *preview

	system     string // system prompt
	history    []llm.Message
	older      int         // how many of them belong to earlier turns
	truncated  bool        // history lacks older messages
	alone      bool        // history has only this turn, because the provider refuses the others
	news       newMessages // of the transcript, as of the transaction that began the turn
	prompt     int         // tokens of the newest prompt, as the model reports them, and its answer
	provenance atomic.Pointer[provenance]
}

// historySize returns how many bytes of transcript fit into a prompt beside the system prompt and
// the tools.
func (t *conversation) historySize() int {
	size := t.env.Calls.Estimates.Bytes(t.settings.ModelID, t.settings.ContextBudget())
	return max(size-t.baseSize(), LeastHistory)
}

// baseSize returns the size of a prompt without the transcript, in bytes.
func (t *conversation) baseSize() int {
	return prompt.TextSize([]llm.Message{{Text: t.system}}) + prompt.ToolsSize(t.tools.Specs())
}

// readLimit returns how many bytes of a transcript to read for a prompt. Older messages must become
// notes first.
func (t *conversation) readLimit() int {
	return 2 * t.env.Calls.Estimates.Bytes(t.settings.ModelID, t.settings.ContextBudget())
}

// LeastHistory is the minimum size of the transcript in a prompt, in bytes.
const LeastHistory = 4096

// restore reads the transcript, which already contains the turn's own messages, builds the system
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

// loadParts reads the transcript and returns the parts of the system prompt.
func (t *conversation) loadParts(ctx context.Context) (system *prompt.System, err error) {
	read := t.env.DB.Read(context.WithoutCancel(ctx))
	if t.First { // the transcript has only what begin wrote
		t.env.Transcripts.begin(t.Session, t.news)
		t.news = newMessages{}
		return t.systemParts(read, session.Summary{})
	}
	h, err := t.env.Transcripts.read(read, t.Session, t.readLimit(), t.news)
	t.news = newMessages{}
	if err != nil {
		return nil, err
	}
	// Read the summary after the transcript: if notes are made in between, that part appears twice
	// instead of not at all.
	var summary session.Summary
	if h.Start > 0 {
		if summary, err = session.ReadSummary(read, t.Session); err != nil {
			return nil, err
		}
	}
	if system, err = t.systemParts(read, summary); err != nil {
		return nil, err
	}
	t.truncated, t.older = h.Truncated, 0
	if h.Truncated && h.Entries[0].Turn == t.ID {
		// The turn alone exceeds the limit, but its question must not be missing.
		t.history, err = session.TurnMessages(read, &t.Turn)
		return system, err
	}
	t.history = make([]llm.Message, 0, len(h.Entries)+8)
	// The turn's own messages come last, even if another turn has written after them. Otherwise the
	// end of that turn would look like the end of this one.
	for _, own := range []bool{false, true} {
		for _, e := range h.Entries {
			if (e.Turn == t.ID) == own {
				t.history = append(t.history, e.Message)
			}
		}
		if !own {
			t.older = len(t.history)
		}
	}
	// Nobody has written again since the turns before, so their foreign text still counts.
	if t.proactive() {
		t.addSources(t.history[:t.older])
	}
	return system, nil
}

// Measure returns the parts of the prompt of a turn that would answer the sender of m, without the
// turn's own messages.
func Measure(
	ctx context.Context, env *Env, s *Settings, key session.Key, m bus.InboundMessage,
) ([]prompt.Content, error) {
	t := conversation{turn: &turn{env: env, settings: s.ForPlace(persona.PlaceOf(&m)), trigger: m,
		role: m.Role, sender: m.Sender, person: m.Person}}
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

// shorten reduces a prompt that the model refused as too long. Notes replace the older half of the
// conversation. Without an older half, shorten cuts the results and arguments of tool calls.
func (t *conversation) shorten(ctx context.Context) error {
	t.env.Calls.Estimates.Exceeded(t.settings.ModelID, t.settings.ContextWindow,
		t.baseSize()+prompt.TextSize(t.history))
	before := len(t.history)
	if err := t.fit(ctx, true); err != nil {
		return err
	}
	if len(t.history) >= before {
		prompt.ShrinkResults(t.history, prompt.ShrunkResult)
		prompt.ShrinkCalls(t.history, prompt.ShrunkResult)
	}
	return nil
}

// append writes messages to the transcript of st and claims batch. A tool call must be on disk
// before it takes effect.
func (t *conversation) append(
	tx *store.Tx, st *session.Turn, batch []bus.Received, m []llm.Message,
) error {
	if slices.ContainsFunc(m, t.hasEffects) {
		tx.WaitForDisk()
	}
	if err := session.Append(tx, st, t.env.Now(), m...); err != nil {
		return err
	}
	return t.claim(tx, st, batch)
}

// claim claims batch and the ambient messages before it. It reports a GoneError if a message can't
// be claimed: see [Env.Claim].
func (t *conversation) claim(tx *store.Tx, st *session.Turn, batch []bus.Received) error {
	var gone GoneError
	for i := range batch {
		ok, err := t.env.Claim(tx, &batch[i], st.ID)
		if err != nil {
			return err
		}
		if !ok {
			gone = append(gone, batch[i].Seq)
		}
	}
	if gone != nil {
		return gone
	}
	// A proactive turn does not show ambient messages. The next question does.
	if len(batch) > 0 && batch[0].Message.Group && t.trigger.Origin.Interactive() {
		last := &batch[len(batch)-1]
		// the conversations of the other members also get the ambient messages
		if st.Session.Speaker != "" {
			return session.SetAmbientSeen(tx, st.Session, last.Came())
		}
		return t.env.Inbox.ForgetAmbient(tx, last.Message.From, last.Came())
	}
	return nil
}

// write appends messages to the transcript.
func (t *conversation) write(ctx context.Context, messages ...llm.Message) error {
	err := t.costs.txSoon(ctx, func(tx *store.Tx) error {
		return t.append(tx, &t.Turn, nil, messages)
	})
	if err != nil {
		return err
	}
	fault.Point("stepped")
	t.recall(messages...)
	return nil
}

// hasEffects reports whether m calls a tool that changes something.
func (t *conversation) hasEffects(m llm.Message) bool {
	return slices.ContainsFunc(m.ToolCalls, func(c llm.ToolCall) bool {
		return t.effect(c) != tool.Pure
	})
}

// effect returns the effect class of the tool of c, which decides whether a restart may make the
// call again. A tool that is gone since the call may have had any effect.
func (t *conversation) effect(c llm.ToolCall) tool.Effect {
	found, err := t.tools.Lookup(c.Name)
	if err != nil {
		return tool.Once
	}
	return found.Effect
}

// A provenance names the sources of foreign text in a turn. Such text must not give orders, but the
// model may follow it all the same. Therefore calls with lasting effects need approval, and so do
// calls that the least privileged author could not have made.
type provenance struct {
	sources []string // the first few, such as "the page https://…"
	least   bus.Role // lowest role among authors who did not talk to the agent; "": none
}

// maxSources is the maximum number of sources that a request for approval names.
const maxSources = 3

// recall adds messages to the turn's history.
func (t *conversation) recall(messages ...llm.Message) {
	t.history = append(t.history, messages...)
	t.addSources(messages)
}

// addSources adds the sources of messages to the turn's provenance.
func (t *conversation) addSources(messages []llm.Message) {
	var now provenance
	if before := t.provenance.Load(); before != nil {
		now = provenance{slices.Clone(before.sources), before.least}
	}
	for _, m := range messages {
		if m.Foreign != "" && len(now.sources) < maxSources && !slices.Contains(now.sources, m.Foreign) {
			now.sources = append(now.sources, m.Foreign)
		}
		if r := bus.Role(m.ForeignRole); r.Valid() && (now.least == "" || now.least.AtLeast(r)) {
			now.least = r
		}
	}
	if len(now.sources) > 0 || now.least != "" {
		t.provenance.Store(&now)
	}
}

// foreign names the foreign sources in the turn; "" if there are none.
func (t *conversation) foreign() string {
	if o := t.provenance.Load(); o != nil {
		return strings.Join(o.sources, ", ")
	}
	return ""
}

// overheard returns the lowest role among authors who did not talk to the agent, or "".
func (t *conversation) overheard() bus.Role {
	if o := t.provenance.Load(); o != nil {
		return o.least
	}
	return ""
}
