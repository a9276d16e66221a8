package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/anthropic/anthropictest"
)

// thinkingModels has models of each kind, with the fields of their requests for the efforts off,
// low and high. "" means no field. "-" means that the model does not have the effort. The fake
// refuses a field that the API refuses.
var thinkingModels = map[string][3]string{
	"claude-3-5-haiku-20241022":  {"-", "-", "-"},
	"claude-3-7-sonnet-20250219": {"", "enabled 2048", "enabled 12096"},
	"claude-haiku-4-5-20251001":  {"", "enabled 2048", "enabled 12096"},
	"claude-opus-4-1":            {"", "enabled 2048", "enabled 12096"},
	"claude-sonnet-4-20250514":   {"", "enabled 2048", "enabled 12096"},
	"claude-sonnet-4-6":          {"", "adaptive low", "adaptive high"},
	"claude-opus-4-7":            {"", "adaptive low", "adaptive high"},
	"claude-opus-5":              {"disabled", "adaptive low", "adaptive high"},
	"claude-sonnet-5":            {"disabled", "adaptive low", "adaptive high"},
	"claude-haiku-5-5":           {"disabled", "adaptive low", "adaptive high"},
	"claude-sonnet-5-5":          {"between_tools", "adaptive low", "adaptive high"},
	"claude-opus-5-5":            {"-", "adaptive low", "adaptive high"},
	"claude-fable-5-1":           {"-", "adaptive low", "adaptive high"},
	"another-model":              {"-", "-", "-"},
}

func TestEfforts(t *testing.T) {
	said := func(anthropictest.Request) anthropictest.Reply {
		return anthropictest.Reply{Text: "fine"}
	}
	for id, want := range thinkingModels {
		srv := anthropictest.Start(t, "key", said)
		m := New("claude", id, &Options{BaseURL: srv.URL, Key: "key"})
		offered := fmt.Sprint(m.Efforts())
		for i, effort := range llm.AllEfforts {
			if can := strings.Contains(offered, string(effort)); can != (want[i] != "-") {
				t.Errorf("%s: %s can be asked for: %v", id, effort, can)
			}
			req := llm.Request{Effort: effort, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}
			for _, err := range m.Stream(t.Context(), req) {
				if err != nil {
					t.Errorf("%s: %s: %v", id, effort, err)
				}
			}
			list := srv.Requests()
			if got := thinkingIn(t, list[len(list)-1].Other); got != strings.Trim(want[i], "-") {
				t.Errorf("%s: %s is sent as %q, want %q", id, effort, got, want[i])
			}
		}
	}
}

// thinkingIn returns the type, effort and budget of thinking in the fields of a request.
func thinkingIn(t *testing.T, other json.RawMessage) string {
	t.Helper()
	var f struct {
		Thinking struct {
			Type   string
			Budget int `json:"budget_tokens"`
		}
		Output struct{ Effort string } `json:"output_config"`
	}
	if err := json.Unmarshal(other, &f); err != nil {
		t.Fatal(err)
	}
	text := f.Thinking.Type + " " + f.Output.Effort
	if f.Thinking.Budget > 0 {
		text += fmt.Sprint(f.Thinking.Budget)
	}
	return strings.TrimSpace(text)
}

// An effort replaces the configured fields. Its budget leaves room for the answer if the answer's
// limit is small. It has no effect within a series of calls that began without a thought.
func TestEffortBeside(t *testing.T) {
	srv := anthropictest.Start(t, "key", func(anthropictest.Request) anthropictest.Reply {
		return anthropictest.Reply{Text: "fine"}
	})
	m := New("claude", "claude-haiku-4-5", &Options{BaseURL: srv.URL, Key: "key",
		Fields: map[string]json.RawMessage{"temperature": json.RawMessage("0.5"),
			"thinking": json.RawMessage(`{"type":"enabled","budget_tokens":1500}`)}})
	hi := llm.Message{Role: llm.User, Text: "hi"}
	call := llm.ToolCall{ID: "c1", Name: "look", Arguments: "{}"}
	calling := []llm.Message{hi, {Role: llm.Assistant, ToolCalls: []llm.ToolCall{call}},
		{Role: llm.ToolRole, ToolCallID: "c1", Text: "seen"}}
	tools := []llm.ToolSpec{{Name: "look"}}
	for _, tt := range []struct {
		req  llm.Request
		want string
	}{
		{llm.Request{Effort: llm.EffortOff, Messages: []llm.Message{hi}}, ""},
		{llm.Request{Effort: llm.EffortHigh, MaxOutput: 800, Messages: []llm.Message{hi}},
			"enabled 1024"},
		{llm.Request{Effort: llm.EffortHigh, MaxOutput: 6000, Messages: []llm.Message{hi}},
			"enabled 3000"},
		{llm.Request{Effort: llm.EffortHigh, Messages: calling, Tools: tools}, ""},
		{llm.Request{Messages: calling, Tools: tools}, ""}, // the configured field, too
	} {
		for _, err := range m.Stream(t.Context(), tt.req) {
			if err != nil {
				t.Errorf("%+v: %v", tt.req, err)
			}
		}
		list := srv.Requests()
		if got := thinkingIn(t, list[len(list)-1].Other); got != tt.want {
			t.Errorf("%s with a limit of %d is sent as %q, want %q", tt.req.Effort, tt.req.MaxOutput,
				got, tt.want)
		}
	}
}

// If thinking is on, fields that the API then refuses are not sent. An effort that this version
// does not know changes nothing. An imported conversation can have one.
func TestEffortFields(t *testing.T) {
	srv := anthropictest.Start(t, "key", func(anthropictest.Request) anthropictest.Reply {
		return anthropictest.Reply{Text: "fine"}
	})
	fields := map[string]json.RawMessage{"temperature": json.RawMessage("0.5"),
		"top_k": json.RawMessage("40"), "top_p": json.RawMessage("0.5")}
	for _, id := range []string{"claude-haiku-4-5", "claude-sonnet-4-6"} {
		m := New("claude", id, &Options{BaseURL: srv.URL, Key: "key", Fields: fields})
		for effort, kept := range map[llm.Effort]bool{llm.EffortHigh: false, "medium": true} {
			hi := []llm.Message{{Role: llm.User, Text: "hi"}}
			for _, err := range m.Stream(t.Context(), llm.Request{Effort: effort, Messages: hi}) {
				if err != nil {
					t.Errorf("%s, %s: %v", id, effort, err)
				}
			}
			list := srv.Requests()
			other := string(list[len(list)-1].Other)
			if got := thinkingIn(t, list[len(list)-1].Other) == ""; got != kept {
				t.Errorf("%s, %s: thinks or not, as %s says", id, effort, other)
			}
			for name := range fields {
				if strings.Contains(other, `"`+name+`"`) != kept {
					t.Errorf("%s, %s: %s in %s, want it there: %t", id, effort, name, other, kept)
				}
			}
		}
	}
}
