package turn

import (
	"crypto/sha256"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/tool"
)

// The loop detector warns a model that repeats a call with the same result, and finally ends the
// turn.
const (
	loopTold  = 3
	loopEnded = 5
)

// A callHash is the hash of a call with its result.
type callHash [sha256.Size]byte

func same(c llm.ToolCall, result string) callHash {
	return sha256.Sum256([]byte(c.Name + "\x00" + compactJSON(c.Arguments) + "\x00" + result))
}

// detectLoop counts how often the call has had this result since a person last wrote. It returns a
// warning for the model, or "".
func (t *toolRound) detectLoop(c llm.ToolCall, result string) string {
	if t.seen == nil {
		t.seen = make(map[callHash]int)
	}
	key := same(c, result)
	t.seen[key]++
	switch n := t.seen[key]; {
	case n >= loopEnded:
		t.model.closing = AskLoop
		return result + NoteLoopEnded
	case n >= loopTold:
		return result + NoteLoop
	}
	return result
}

// offerTools gives the model its tools back after it has repeated a call too often, unless it has
// used all rounds.
func (t *toolRound) offerTools() {
	if t.seen, t.model.closing = nil, ""; t.rounds >= t.maxRounds() {
		t.model.closing = AskSumUp
	}
}

// recount counts the rounds of tool calls of earlier attempts, and their equal calls with equal
// results. It also notes whether they may have changed documents.
func (t *toolRound) recount(messages []llm.Message) {
	calls := make(map[string]llm.ToolCall)
	for _, m := range messages {
		if m.Role == llm.User {
			t.offerTools()
		}
		if len(m.ToolCalls) > 0 {
			t.rounds++
		}
		for _, c := range m.ToolCalls {
			calls[c.ID] = c
			own, _ := documentsIn(c.Arguments)
			t.wrote = t.wrote || own && t.conv.effect(c) != tool.Pure
		}
		if c, ok := calls[m.ToolCallID]; ok && m.Role == llm.ToolRole {
			text := strings.TrimSuffix(strings.TrimSuffix(m.Text, NoteLoop), NoteLoopEnded)
			t.detectLoop(c, text)
		}
	}
	if t.rounds >= t.maxRounds() {
		t.model.closing = AskSumUp
	}
}
