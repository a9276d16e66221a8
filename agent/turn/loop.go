package turn

import (
	"crypto/sha256"
	"strings"

	"gateway/agent/llm"
)

// The loop detector warns a model that makes the same call again and again with the same result,
// and at last ends the turn.
const (
	loopTold  = 3
	loopEnded = 5
)

// A sameness is a call together with its result.
type sameness [sha256.Size]byte

func same(c llm.ToolCall, result string) sameness {
	return sha256.Sum256([]byte(c.Name + "\x00" + compactJSON(c.Arguments) + "\x00" + result))
}

// detectLoop counts how often the call has had this result since a person last wrote, and returns
// what the model is told.
func (t *round) detectLoop(c llm.ToolCall, result string) string {
	if t.seen == nil {
		t.seen = make(map[sameness]int)
	}
	key := same(c, result)
	t.seen[key]++
	switch n := t.seen[key]; {
	case n >= loopEnded:
		t.closing = AskLoop
		return result + NoteLoopEnded
	case n >= loopTold:
		return result + NoteLoop
	}
	return result
}

// recount counts what earlier attempts of the turn have done: rounds of tool calls, and the same
// call with the same result.
func (t *round) recount(messages []llm.Message) {
	calls := make(map[string]llm.ToolCall)
	for _, m := range messages {
		if m.Role == llm.User {
			t.seen, t.closing = nil, ""
		}
		if len(m.ToolCalls) > 0 {
			t.rounds++
		}
		for _, c := range m.ToolCalls {
			calls[c.ID] = c
		}
		if c, ok := calls[m.ToolCallID]; ok && m.Role == llm.ToolRole {
			text := strings.TrimSuffix(strings.TrimSuffix(m.Text, NoteLoop), NoteLoopEnded)
			t.detectLoop(c, text)
		}
	}
	if t.rounds >= t.maxRounds() {
		t.closing = AskSumUp
	}
}
