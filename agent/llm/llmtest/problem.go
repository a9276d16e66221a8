package llmtest

import (
	"fmt"

	"gateway/agent/llm"
)

// Problem returns the reason why the strictest provider would refuse messages, or "".
func Problem(messages []llm.Message) string {
	var open []string // calls whose results must come next
	before := llm.Role("")
	for i, m := range messages {
		switch {
		case (i == 0) != (m.Role == llm.System):
			return fmt.Sprintf("message %d is of role %s", i, m.Role)
		case i == 1 && m.Role != llm.User:
			return fmt.Sprintf("the conversation begins with role %s", m.Role)
		case m.Role == llm.ToolRole && (len(open) == 0 || open[0] != m.ToolCallID):
			return fmt.Sprintf("message %d is the result of %q, want of %q", i, m.ToolCallID, open)
		case m.Role == llm.ToolRole:
			open = open[1:]
		case len(open) > 0:
			return fmt.Sprintf("message %d comes before the results of %q", i, open)
		case m.Role == before:
			return fmt.Sprintf("messages %d and %d are both of role %s", i-1, i, m.Role)
		}
		for _, c := range m.ToolCalls {
			open = append(open, c.ID)
		}
		before = m.Role
	}
	if len(open) > 0 || before == llm.Assistant {
		return fmt.Sprintf("the last message is of role %s, calls %q are open", before, open)
	}
	return ""
}
