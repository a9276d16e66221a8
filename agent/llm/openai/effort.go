package openai

import (
	"encoding/json"
	"path"
	"strings"

	"gateway/agent/llm"
)

// efforts maps an effort to the fields of a request that make a model think for longer or shorter.
type efforts map[llm.Effort]map[string]json.RawMessage

// jsonFields returns the fields of one effort from pairs of a name and its JSON value.
func jsonFields(pairs ...string) map[string]json.RawMessage {
	m := make(map[string]json.RawMessage)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

// Names and values of fields in requests.
const (
	effortField   = "reasoning_effort"
	thinkingField = "thinking"
	thinks        = `{"type":"enabled"}`
	thinksNot     = `{"type":"disabled"}`
)

// newEfforts returns the efforts of a model with these values of reasoning_effort. "" means that
// the model does not have the effort.
func newEfforts(off, low, high string) efforts {
	e := make(efforts)
	for effort, word := range map[llm.Effort]string{
		llm.EffortOff: off, llm.EffortLow: low, llm.EffortHigh: high,
	} {
		if word != "" {
			e[effort] = jsonFields(effortField, `"`+word+`"`)
		}
	}
	return e
}

// guessEfforts derives a model's efforts from host and model id. It is based on the providers'
// documentation of November 2026, and covers only models that support tools.
func guessEfforts(host, id string) efforts {
	id = strings.ToLower(id)
	bare := path.Base(id)
	moonshot := host == "api.moonshot.ai" || host == "api.moonshot.cn"
	switch {
	case host == "api.openai.com" && strings.HasPrefix(bare, "gpt-5.1"):
		return newEfforts("none", "low", "high")
	case host == "api.openai.com" && hasAnyPrefix(bare, "gpt-5.", "gpt-5-pro", "gpt-5-chat"):
		return nil // since gpt-5.2, the chat API refuses tools together with any effort except none
	case host == "api.openai.com" && hasAnyPrefix(bare, "gpt-5", "o1", "o3", "o4"):
		return newEfforts("", "low", "high")
	case host == "openrouter.ai": // translates for each maker; other models ignore it
		return efforts{
			llm.EffortOff:  jsonFields("reasoning", `{"effort":"none"}`),
			llm.EffortLow:  jsonFields("reasoning", `{"effort":"low"}`),
			llm.EffortHigh: jsonFields("reasoning", `{"effort":"high"}`),
		}
	case host == "api.deepseek.com":
		return efforts{
			llm.EffortOff:  jsonFields(thinkingField, thinksNot),
			llm.EffortLow:  jsonFields(thinkingField, thinks, effortField, `"low"`),
			llm.EffortHigh: jsonFields(thinkingField, thinks, effortField, `"high"`),
		}
	case host == "generativelanguage.googleapis.com":
		if strings.HasPrefix(bare, "gemini-2.5-flash") {
			return newEfforts("none", "low", "high")
		}
		return newEfforts("", "low", "high") // these can't stop thinking
	case host == "api.groq.com" && strings.HasPrefix(bare, "qwen3"):
		return newEfforts("none", "", "default")
	case host == "api.groq.com" && strings.HasPrefix(bare, "gpt-oss"),
		host == "api.together.xyz" && strings.HasPrefix(bare, "gpt-oss"),
		host == "api.x.ai" && strings.HasPrefix(bare, "grok-3-mini"):
		return newEfforts("", "low", "high")
	case host == "api.mistral.ai" && hasAnyPrefix(bare, "mistral-small-latest", "mistral-small-26",
		"mistral-medium-latest", "mistral-medium-3-5", "mistral-medium-3.5"):
		return newEfforts("none", "", "high")
	case host == "api.x.ai" && strings.HasPrefix(bare, "grok-4.3"):
		return newEfforts("none", "low", "high")
	case moonshot && hasAnyPrefix(bare, "kimi-k2.5", "kimi-k2.6"):
		return efforts{
			llm.EffortOff:  jsonFields(thinkingField, thinksNot),
			llm.EffortHigh: jsonFields(thinkingField, thinks),
		}
	case moonshot && strings.HasPrefix(bare, "kimi-k3"):
		return newEfforts("", "low", "high")
	case strings.HasSuffix(host, ":11434"): // Ollama
		return newEfforts("none", "low", "high")
	}
	return nil
}
