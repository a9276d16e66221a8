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

// A thinker is how a model of Claude is told to think:
// https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking.
type thinker struct {
	budget   bool   // by a number of tokens; else by an effort
	off      string // the value of thinking that switches it off; "": nothing is sent
	alwaysOn bool   // it can't be switched off
}

// modelName is the maker's name of a model: claude-sonnet-4-6 or claude-3-7-sonnet-20250219.
var modelName = regexp.MustCompile(
	`^claude-(?:([a-z]+)-)?([0-9]{1,2})(?:-([0-9]{1,2}))?(?:-([a-z]+))?(?:-|$)`)

const disabled = `{"type":"disabled"}`

// thinkerOf returns how the model with an id thinks, nil if it does not.
func thinkerOf(id string) *thinker {
	m := modelName.FindStringSubmatch(strings.ToLower(id))
	if m == nil {
		return nil
	}
	family := m[1] + m[4]
	// The expression lets only numbers through; a missing one is 0.
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	version := 100*major + minor
	switch {
	case version < 307:
		return nil
	case family == "fable" || family == "mythos", family == "opus" && version >= 505:
		return &thinker{alwaysOn: true}
	case version < 406:
		return &thinker{budget: true}
	case version < 500:
		return &thinker{}
	case family == "sonnet" && version >= 505:
		return &thinker{off: `{"type":"between_tools"}`}
	}
	return &thinker{off: disabled}
}

// Efforts returns the efforts that can be asked of the model.
func (m *Model) Efforts() []llm.Effort {
	switch {
	case m.thinker == nil:
		return nil
	case m.thinker.alwaysOn:
		return []llm.Effort{llm.EffortLow, llm.EffortHigh}
	}
	return llm.AllEfforts
}

// Tokens of thoughts, for the models that want a number.
const (
	leastBudget = 1024 // of the API
	lowBudget   = 2048
	highBudget  = 16_000
)

// think sets how long the model thinks in r, and returns the further fields of the request.
func (m *Model) think(r *request, effort llm.Effort, given int) map[string]json.RawMessage {
	if !slices.Contains(m.Efforts(), effort) {
		return m.fields
	}
	t := m.thinker
	fields := maps.Clone(m.fields)
	if fields == nil {
		fields = make(map[string]json.RawMessage)
	}
	delete(fields, "thinking")
	delete(fields, "output_config")
	if effort == llm.EffortOff {
		if t.off != "" {
			fields["thinking"] = json.RawMessage(t.off)
		}
		return fields
	}
	delete(fields, "temperature") // the API refuses these beside thoughts
	delete(fields, "top_k")
	delete(fields, "top_p") // refused below 0.95
	want := lowBudget
	if effort == llm.EffortHigh {
		want = highBudget
	}
	if given == 0 { // thoughts count as a part of the answer, whose room stays the same
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

// mayThink reports whether the API allows thoughts now: within a series of tool calls only if it
// began with one.
func (r *request) mayThink() bool {
	n := len(r.Messages)
	if n < 2 || r.Messages[n-1].Content[0].Type != "tool_result" {
		return true
	}
	said := r.Messages[n-2].Content
	return len(said) > 0 && strings.HasSuffix(said[0].Type, "thinking")
}
