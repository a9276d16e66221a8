package anthropic

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/llm"
)

// A thinkingConfig describes how thinking is configured for a Claude model. See
// https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking.
type thinkingConfig struct {
	budget   bool   // a number of tokens; otherwise an effort
	off      string // value of the thinking field that disables it; "": send no field
	alwaysOn bool   // thinking can't be disabled
}

// modelName matches Anthropic's model ids: claude-sonnet-4-6 or claude-3-7-sonnet-20250219.
var modelName = regexp.MustCompile(
	`^claude-(?:([a-z]+)-)?([0-9]{1,2})(?:-([0-9]{1,2}))?(?:-([a-z]+))?(?:-|$)`)

const disabled = `{"type":"disabled"}`

// thinkerOf returns the thinkingConfig of the model with the given id, or nil if the model can't
// think.
func thinkerOf(id string) *thinkingConfig {
	m := modelName.FindStringSubmatch(strings.ToLower(id))
	if m == nil {
		return nil
	}
	family := m[1] + m[4]
	// The expression matches only digits. A missing number becomes 0.
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	version := 100*major + minor
	switch {
	case version < 307:
		return nil
	case family == "fable" || family == "mythos", family == "opus" && version >= 505:
		return &thinkingConfig{alwaysOn: true}
	case version < 406:
		return &thinkingConfig{budget: true}
	case version < 500:
		return &thinkingConfig{}
	case family == "sonnet" && version >= 505:
		return &thinkingConfig{off: `{"type":"between_tools"}`}
	}
	return &thinkingConfig{off: disabled}
}

// Efforts returns the efforts that the model supports.
func (m *Model) Efforts() []llm.Effort {
	switch {
	case m.thinker == nil:
		return nil
	case m.thinker.alwaysOn:
		return []llm.Effort{llm.EffortLow, llm.EffortHigh}
	}
	return llm.AllEfforts
}

// Thinking budgets in tokens, for models that require a number.
const (
	leastBudget = 1024 // minimum of the API
	lowBudget   = 2048
	highBudget  = 16_000
)

// think returns the fields of the request for an effort. It also raises the limit of the answer in
// r, unless the caller has given one.
func (m *Model) think(r *request, effort llm.Effort, given int) map[string]json.RawMessage {
	fields := make(map[string]json.RawMessage)
	maps.Copy(fields, m.fields)
	if !slices.Contains(m.Efforts(), effort) {
		if hasBudget(fields["thinking"]) && !r.mayThink() {
			delete(fields, "thinking")
		}
		return fields
	}
	t := m.thinker
	delete(fields, "thinking")
	delete(fields, "output_config")
	if effort == llm.EffortOff {
		if t.off != "" {
			fields["thinking"] = json.RawMessage(t.off)
		}
		return fields
	}
	delete(fields, "temperature") // the API refuses these together with thinking
	delete(fields, "top_k")
	delete(fields, "top_p") // refused if below 0.95
	want := lowBudget
	if effort == llm.EffortHigh {
		want = highBudget
	}
	if given == 0 { // thoughts count towards the limit; keep the room for the answer
		r.MaxTokens += want
	}
	switch {
	case !t.budget:
		fields["thinking"] = json.RawMessage(`{"type":"adaptive"}`)
		fields["output_config"] = json.RawMessage(`{"effort":` + strconv.Quote(string(effort)) + "}")
	case r.mayThink():
		r.MaxTokens = max(r.MaxTokens, 2*leastBudget)
		fields["thinking"] = json.RawMessage(fmt.Sprintf(`{"type":"enabled","budget_tokens":%d}`,
			max(leastBudget, min(want, r.MaxTokens/2))))
	}
	return fields
}

// hasBudget reports whether the field thinking has the form of older models.
func hasBudget(field json.RawMessage) bool {
	var thinking struct{ Type string }
	return json.Unmarshal(field, &thinking) == nil && thinking.Type == "enabled"
}

// mayThink reports whether the API allows older models to think in this request. During a series of
// tool calls it does so only if the series began with a thought.
func (r *request) mayThink() bool {
	n := len(r.Messages)
	if n < 2 || r.Messages[n-1].Content[0].Type != "tool_result" {
		return true
	}
	last := r.Messages[n-2].Content
	return len(last) > 0 && last[0].isThought()
}
