package anthropictest

import (
	"encoding/json"
	"strings"
)

// A thinking has the fields of a request that configure thinking.
type thinking struct {
	Thinking *struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
	Output struct {
		Effort string `json:"effort"`
	} `json:"output_config"`
	Temperature *float64 `json:"temperature"`
	TopK        *int     `json:"top_k"`
}

// thinkingOf lists the types of thinking that models support, by prefix of the model id, according
// to the page "Adaptive thinking" of the documentation. Other models support none.
var thinkingOf = []struct{ model, types string }{
	{"claude-fable", "adaptive"}, {"claude-mythos", "adaptive"}, {"claude-opus-5-5", "adaptive"},
	{"claude-sonnet-5-5", "adaptive between_tools"}, {"claude-haiku-5", "adaptive disabled"},
	{"claude-opus-5", "adaptive disabled"}, {"claude-sonnet-5", "adaptive disabled"},
	{"claude-opus-4-8", "adaptive"}, {"claude-opus-4-7", "adaptive"},
	{"claude-opus-4-6", "adaptive enabled disabled"},
	{"claude-sonnet-4-6", "adaptive enabled disabled"}, {"claude-3-7", "enabled disabled"},
	{"claude-opus-4", "enabled disabled"}, {"claude-sonnet-4", "enabled disabled"},
	{"claude-haiku-4", "enabled disabled"},
}

// thinkingProblem returns the reason why the API refuses the request's configuration of thinking,
// or "".
func (r *Request) thinkingProblem() string {
	var t thinking
	if err := json.Unmarshal(r.Other, &t); err != nil {
		return err.Error()
	}
	types := ""
	for _, known := range thinkingOf {
		if types == "" && strings.HasPrefix(r.Model, known.model) {
			types = known.types
		}
	}
	isKnown := strings.HasPrefix(r.Model, "claude-")
	if t.Output.Effort != "" && isKnown && !strings.Contains(types, "adaptive") {
		return "This model does not support the effort parameter."
	}
	if t.Thinking == nil {
		return ""
	}
	switch {
	case !strings.Contains(" "+types+" ", " "+t.Thinking.Type+" "):
		return `"thinking.type.` + t.Thinking.Type + `" is not supported for this model.`
	case t.Thinking.Type == "adaptive" || t.Thinking.Type == "enabled":
		if t.Temperature != nil && *t.Temperature != 1 || t.TopK != nil {
			return "`temperature` may only be set to 1 when thinking is enabled."
		}
	}
	if t.Thinking.Type != "enabled" {
		return ""
	}
	switch n := len(r.Messages); {
	case t.Thinking.Budget < 1024:
		return "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
	case t.Thinking.Budget >= r.MaxTokens:
		return "`max_tokens` must be greater than `thinking.budget_tokens`."
	case n > 1 && r.Messages[n-1].Content[0].Type == "tool_result" &&
		!strings.HasSuffix(r.Messages[n-2].Content[0].Type, "thinking"):
		return "Expected `thinking` or `redacted_thinking`, but found `tool_use`."
	}
	return ""
}

// shape returns the order of the thoughts, texts and calls of an answer.
func (r *Reply) shape() (shape string) {
	for ; r != nil; r = r.Then {
		if r.Thinking != "" {
			shape += "thinking " + r.Thinking + "\n"
		}
		if r.Text != "" {
			shape += "text\n"
		}
		for range r.Calls {
			shape += "tool_use\n"
		}
	}
	return shape
}

// changedThoughts returns the problem of a request in whose last answer a thought has another place
// than in the answer that the API gave. The caller holds mu.
func (s *Server) changedThoughts(messages []Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role != "assistant" {
			continue
		}
		shape := ""
		for _, b := range messages[i].Content {
			if shape += b.Type; b.Type == "thinking" {
				shape += " " + b.Thinking
			}
			shape += "\n"
		}
		if strings.Contains(shape, "thinking") && !s.shapes[shape] {
			return "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be " +
				"modified."
		}
		return ""
	}
	return ""
}
