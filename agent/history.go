package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/session"
	"gateway/store"
)

// bytesPerToken is how many bytes of JSON a token is taken for. It errs on the safe side: English
// has about four, Chinese about three.
const bytesPerToken = 3

// historySize is how many bytes of history fit into a prompt: what the window leaves beside the
// answer, the system prompt and the tools.
func (d *Dispatcher) historySize() int {
	const reserved = 4096 // tokens, of the system prompt and the tools
	return max(d.contextBudget()-reserved, 1024) * bytesPerToken
}

// contextBudget is how many tokens a prompt may have, so that there is room for the answer.
func (d *Dispatcher) contextBudget() int {
	const answer = 8192 // tokens, where only the provider knows
	return d.opts.ContextWindow - cmp.Or(d.opts.MaxOutput, min(answer, d.opts.ContextWindow/4))
}

// restore reads the transcript, in which the turn's own messages are by now, and builds the
// system prompt.
func (t *turn) restore(ctx context.Context) error {
	t.system = t.d.systemPrompt(t.Address, t.title, t.tools)
	if t.First {
		return nil // there is nothing but what begin has written
	}
	read := t.d.DB.Read(context.WithoutCancel(ctx))
	h, err := t.d.memory.read(read, t.d.sessions, t.Session, t.d.historySize())
	if err != nil {
		return err
	}
	switch {
	case !h.Truncated:
		t.setHistory(h.Entries)
		return nil
	case h.Entries[0].Turn == t.ID: // it is too long by itself, but its question must not be missing
		t.history, err = t.d.sessions.TurnMessages(read, &t.Turn)
		return err
	}
	// Half is left out at once, so that the prompt's beginning stays the same for many turns.
	return t.keepNewer(ctx, h.Entries)
}

func (t *turn) setHistory(entries []session.Entry) {
	t.history = make([]llm.Message, 0, len(entries)+8)
	for _, e := range entries {
		t.history = append(t.history, e.Message)
	}
}

// keepNewer leaves the older half of entries out of this prompt and all later ones.
func (t *turn) keepNewer(ctx context.Context, entries []session.Entry) error {
	entries = newerHalf(entries, t.ID)
	t.setHistory(entries)
	return t.d.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		return t.d.sessions.Trim(tx, t.Session, entries[0].ID)
	})
}

// newerHalf returns the newer half of entries, beginning with a message of the user, and with it
// all of the given turn. It returns all entries if no such message is there.
func newerHalf(entries []session.Entry, turn int64) []session.Entry {
	i := len(entries) / 2
	own := slices.IndexFunc(entries, func(e session.Entry) bool { return e.Turn == turn })
	if own >= 0 {
		i = min(i, own)
	}
	for ; i < len(entries); i++ {
		if entries[i].Message.Role == llm.User {
			return entries[i:]
		}
	}
	return entries
}

// shorten makes the prompt smaller after the model has found it too long: the older half of the
// conversation is left out, or, where there is no such half, the tool results are cut.
func (t *turn) shorten(ctx context.Context) error {
	read := t.d.DB.Read(context.WithoutCancel(ctx))
	h, err := t.d.sessions.Transcript(read, t.Session, t.d.historySize())
	if err != nil {
		return err
	}
	if len(newerHalf(h.Entries, t.ID)) < len(h.Entries) {
		return t.keepNewer(ctx, h.Entries)
	}
	shrinkAll(t.history, shrunkResult)
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
	var list []llm.Message
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

// keptResults is how many messages at the end of a prompt are never shrunk.
const keptResults = 4

// imageSize is what an image is taken for, in bytes of text: about 1,300 tokens.
const imageSize = 4000

func textSize(list []llm.Message) (n int) {
	for _, m := range list {
		n += len(m.Text) + min(len(m.Images), maxImages)*imageSize
	}
	return n
}

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

// merge joins consecutive messages of the user, and of the assistant.
func merge(list []llm.Message) []llm.Message {
	var out []llm.Message
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
