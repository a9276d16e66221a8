package agent

import (
	"context"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/session"
)

// historySize is how many bytes the transcript in a prompt may have: what the budget leaves beside
// the system prompt and the tools.
func (t *turn) historySize() int {
	size := t.d.estimates.bytes(t.config().ModelID, t.config().contextBudget())
	return max(size-len(t.system)-toolsSize(t.tools.Specs()), leastHistory)
}

// readLimit is how many bytes of a transcript are read for a prompt. What is more shall become
// notes first.
func (t *turn) readLimit() int {
	return 2 * t.d.estimates.bytes(t.config().ModelID, t.config().contextBudget())
}

// leastHistory is how many bytes of transcript a prompt has at least.
const leastHistory = 4096

// restore reads the transcript, in which the turn's own messages are by now, builds the system
// prompt, and makes both fit.
func (t *turn) restore(ctx context.Context) error {
	if err := t.load(ctx); err != nil {
		return err
	}
	return t.fit(ctx, false)
}

// load reads the transcript and builds the system prompt.
func (t *turn) load(ctx context.Context) (err error) {
	read := t.d.DB.Read(context.WithoutCancel(ctx))
	if t.First { // there is nothing but what begin has written
		t.system, err = t.systemPrompt(read, session.Summary{})
		return err
	}
	h, err := t.d.recent.read(read, t.d.sessions, t.Session, t.readLimit())
	if err != nil {
		return err
	}
	// Read after the transcript: what becomes notes in between is there twice, and not missing.
	var summary session.Summary
	if h.Start > 0 {
		if summary, err = t.d.sessions.Summary(read, t.Session); err != nil {
			return err
		}
	}
	if t.system, err = t.systemPrompt(read, summary); err != nil {
		return err
	}
	t.truncated, t.older = h.Truncated, 0
	if h.Truncated && h.Entries[0].Turn == t.ID {
		// It is too long by itself, but its question must not be missing.
		t.history, err = t.d.sessions.TurnMessages(read, &t.Turn)
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
func (t *turn) shorten(ctx context.Context) error {
	t.d.estimates.exceeded(t.config().ModelID, t.config().ContextWindow,
		len(t.system)+textSize(t.history)+toolsSize(t.tools.Specs()))
	before := len(t.history)
	if err := t.fit(ctx, true); err != nil {
		return err
	}
	if len(t.history) >= before {
		shrinkAll(t.history, shrunkResult)
	}
	return nil
}

// shrunkResult is how many bytes stay of an old tool result where room is needed, and
// leastResult where even that is too much.
const (
	shrunkResult = 1000
	leastResult  = 100
)

// shrinkAll cuts the tool results in list that have more than n bytes, mark included.
func shrinkAll(list []llm.Message, n int) {
	for i := range list {
		if m := &list[i]; m.Role == llm.ToolRole && len(m.Text) > n {
			m.Text = clip(strings.TrimSuffix(m.Text, resultShrunk), n-len(resultShrunk)) + resultShrunk
		}
	}
}

// prepare returns history as a model takes it: it begins with the user, each tool call is
// followed by its result in the order of the calls, and results without a call are left
// out. If it is larger than size bytes, older tool results are shrunk.
func prepare(history []llm.Message, size int) []llm.Message {
	begin := slices.IndexFunc(history, func(m llm.Message) bool { return m.Role == llm.User })
	if begin < 0 {
		return nil
	}
	list := make([]llm.Message, 0, len(history)-begin+requestMessages)
	for rest := history[begin:]; len(rest) > 0; {
		m := rest[0]
		rest = rest[1:]
		if m.Role == llm.ToolRole {
			continue // its call is not there
		}
		list = append(list, m)
		if len(m.ToolCalls) > 0 {
			n := slices.IndexFunc(rest, func(m llm.Message) bool { return m.Role != llm.ToolRole })
			if n < 0 {
				n = len(rest)
			}
			list = append(list, results(m.ToolCalls, rest[:n])...)
			rest = rest[n:]
		}
	}
	if textSize(list) > size {
		shrinkAll(list[:lastUser(list)], shrunkResult)
	}
	old := list[:max(len(list)-keptResults, 0)]
	for _, n := range []int{shrunkResult, leastResult} { // one giant turn
		if textSize(list) > size {
			shrinkAll(old, n)
		}
	}
	return list
}

// requestMessages is for how many more messages there is room, which a request has at most besides
// the history.
const requestMessages = 3

// keptResults is how many messages at the end of a prompt are never shrunk.
const keptResults = 4

// results returns the result of each call, in the order of the calls.
func results(calls []llm.ToolCall, found []llm.Message) []llm.Message {
	list := make([]llm.Message, 0, len(calls))
	for _, c := range calls {
		i := slices.IndexFunc(found, func(m llm.Message) bool { return m.ToolCallID == c.ID })
		if i >= 0 {
			list = append(list, found[i])
		} else {
			list = append(list, toolResult(c, resultMissing))
		}
	}
	return list
}

func lastUser(list []llm.Message) int {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Role == llm.User {
			return i
		}
	}
	return 0
}

// merge joins consecutive messages of the user, and of the assistant, in list's place.
func merge(list []llm.Message) []llm.Message {
	out := list[:0]
	for _, m := range list {
		if n := len(out) - 1; n >= 0 && out[n].Role == m.Role &&
			(m.Role == llm.User || m.Role == llm.Assistant) {
			m.Text = strings.Trim(out[n].Text+"\n\n"+m.Text, "\n")
			m.Images = slices.Concat(out[n].Images, m.Images)
			out[n] = m
			continue
		}
		out = append(out, m)
	}
	return out
}

// unanswered returns the tool calls at the end of history that have no result yet.
func unanswered(history []llm.Message) []llm.ToolCall {
	i := len(history) - 1
	for i >= 0 && history[i].Role == llm.ToolRole {
		i--
	}
	if i < 0 {
		return nil
	}
	var open []llm.ToolCall
	for _, c := range history[i].ToolCalls {
		if !slices.ContainsFunc(history[i+1:], func(m llm.Message) bool { return m.ToolCallID == c.ID }) {
			open = append(open, c)
		}
	}
	return open
}

// closeCalls returns a result with the given text for each tool call that has none.
func closeCalls(history []llm.Message, text string) []llm.Message {
	var list []llm.Message
	for _, c := range unanswered(history) {
		list = append(list, toolResult(c, text))
	}
	return list
}

func toolResult(c llm.ToolCall, text string) llm.Message {
	return llm.Message{Role: llm.ToolRole, ToolCallID: c.ID, Text: text}
}
