package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// Each model gets its own fields for the efforts off, low and high. "-" means that the model does
// not have the effort.
func TestEfforts(t *testing.T) {
	const (
		none = `{"reasoning_effort":"none"}`
		low  = `{"reasoning_effort":"low"}`
		high = `{"reasoning_effort":"high"}`
	)
	cannot, some := [3]string{"-", "-", "-"}, [3]string{"-", low, high}
	all := [3]string{none, low, high}
	for _, tt := range []struct {
		base, id string
		want     [3]string
	}{
		{"https://api.openai.com/v1", "gpt-5.1", all},
		{"https://api.openai.com/v1", "gpt-5-mini", some},
		{"https://api.openai.com/v1", "o4-mini", some},
		{"https://api.openai.com/v1", "gpt-5.4-mini", cannot},
		{"https://api.openai.com/v1", "gpt-6-sol", cannot},
		{"https://api.openai.com/v1", "gpt-4.1", cannot},
		{"https://openrouter.ai/api/v1", "openai/gpt-5.4", [3]string{`{"reasoning":{"effort":"none"}}`,
			`{"reasoning":{"effort":"low"}}`, `{"reasoning":{"effort":"high"}}`}},
		{"https://api.deepseek.com", "deepseek-v4-flash", [3]string{`{"thinking":{"type":"disabled"}}`,
			`{"reasoning_effort":"low","thinking":{"type":"enabled"}}`,
			`{"reasoning_effort":"high","thinking":{"type":"enabled"}}`}},
		{"https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-flash", all},
		{"https://generativelanguage.googleapis.com/v1beta/openai", "gemini-flash-latest", some},
		{"https://api.groq.com/openai/v1", "openai/gpt-oss-120b", some},
		{"https://api.groq.com/openai/v1", "qwen/qwen3-32b", [3]string{none, "-",
			`{"reasoning_effort":"default"}`}},
		{"https://api.groq.com/openai/v1", "llama-3.3-70b-versatile", cannot},
		{"https://api.mistral.ai/v1", "mistral-medium-latest", [3]string{none, "-", high}},
		{"https://api.mistral.ai/v1", "magistral-medium-latest", cannot},
		{"https://api.moonshot.ai/v1", "kimi-k2.6", [3]string{`{"thinking":{"type":"disabled"}}`, "-",
			`{"thinking":{"type":"enabled"}}`}},
		{"https://api.moonshot.ai/v1", "kimi-k3", some},
		{"https://api.moonshot.ai/v1", "kimi-k2.7-code", cannot},
		{"https://api.x.ai/v1", "grok-4.3", all},
		{"https://api.x.ai/v1", "grok-4", cannot},
		{"https://api.together.xyz/v1", "openai/gpt-oss-120b", some},
		{"http://127.0.0.1:11434/v1", "qwen3:8b", all},
		{"http://127.0.0.1:1234/v1", "qwen/qwen3-8b", cannot},
	} {
		m := New("m", tt.id, &Options{BaseURL: tt.base,
			Fields: map[string]json.RawMessage{"top_p": json.RawMessage("0.5")}})
		for i, effort := range llm.AllEfforts {
			got := "-"
			if m.hasEffort(effort) {
				fields := m.effortFields(effort)
				delete(fields, "top_p")
				text, err := json.Marshal(fields)
				if err != nil {
					t.Fatal(err)
				}
				got = string(text)
			}
			if got != tt.want[i] {
				t.Errorf("%s of %s: %s is %s, want %s", tt.id, tt.base, effort, got, tt.want[i])
			}
		}
	}
}

// A model with a configured effort supports efforts. The effort of a request replaces the
// configured one.
func TestConfiguredEffort(t *testing.T) {
	for _, configured := range []string{"", `"medium"`} {
		fields, offered, sent := map[string]json.RawMessage{}, "[]", ""
		if configured != "" {
			fields["reasoning_effort"] = json.RawMessage(configured)
			offered, sent = "[off low high]", `"high"`
		}
		m := New("m", "local", &Options{BaseURL: "http://127.0.0.1:1/v1", Fields: fields})
		if got := fmt.Sprint(m.Efforts()); got != offered {
			t.Errorf("configured %s: the efforts are %s, want %s", configured, got, offered)
		}
		if got := m.effortFields(llm.EffortHigh)["reasoning_effort"]; string(got) != sent {
			t.Errorf("configured %s: high is sent as %s, want %s", configured, got, sent)
		}
		if got := string(fields["reasoning_effort"]); got != configured {
			t.Errorf("the configured effort has become %s", got)
		}
	}
}

// A model that refuses an effort is asked without it, and no longer offers it.
func TestRefusedEffort(t *testing.T) {
	for _, tt := range []struct {
		configured, refused, message, left string
		effort                             llm.Effort
	}{
		// Ollama. See https://github.com/CherryHQ/cherry-studio/pull/18744.
		{`"none"`, "high", `"gemma3:4b" does not support thinking`, "[off low]", llm.EffortHigh},
		// An older Ollama. See https://github.com/ollama/ollama/issues/12561.
		{`"none"`, "low", `think value "low" is not supported for this model`, "[off high]",
			llm.EffortLow},
		// Azure.
		{`"medium"`, "none", "Unsupported value: 'reasoning_effort' does not support 'none' with " +
			"this model. Supported values are: 'minimal', 'low', 'medium', and 'high'.", "[low high]",
			llm.EffortOff},
	} {
		m, refused := strict(t, "m", tt.refused, tt.message)
		m.fields = map[string]json.RawMessage{"reasoning_effort": json.RawMessage(tt.configured)}
		m.think = newEfforts("none", "low", "high")
		for range 2 {
			req := ask("hello")
			req.Effort = tt.effort
			if text, _, err := collect(t.Context(), m, req); err != nil || text != "done" {
				t.Errorf("%s: got %q, %v", tt.message, text, err)
			}
		}
		if n := refused(); n != 1 {
			t.Errorf("%s: %d requests were refused, want 1", tt.message, n)
		}
		if got := fmt.Sprint(m.Efforts()); got != tt.left {
			t.Errorf("%s: it still offers %s, want %s", tt.message, got, tt.left)
		}
	}
}

// OpenAI sends nothing while a model thinks, and with a high effort it may think for more than a
// minute. See https://github.com/mezmo/aura/issues/62 and
// https://github.com/can1357/oh-my-pi/pull/6951.
func TestLongThought(t *testing.T) {
	for _, tt := range []struct {
		effort     llm.Effort
		configured string
		thought    time.Duration
		want       error
	}{
		{llm.EffortHigh, "", 170 * time.Second, nil},
		{llm.EffortHigh, "", 190 * time.Second, wire.ErrIdle},
		{llm.EffortDefault, `"xhigh"`, 170 * time.Second, nil},
		{llm.EffortLow, `"xhigh"`, 70 * time.Second, wire.ErrIdle},
		{llm.EffortDefault, "", 70 * time.Second, wire.ErrIdle},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{HTTP: &http.Client{Transport: thinker(tt.thought)}}
			if tt.configured != "" {
				o.Fields = jsonFields(effortField, tt.configured)
			}
			req := ask("x")
			req.Effort = tt.effort
			text, _, err := collect(t.Context(), New("test", "gpt-5", &o), req)
			if !errors.Is(err, tt.want) || err == nil && text != "done" {
				t.Errorf("%+v: got %q, %v", tt, text, err)
			}
		})
	}
}

// A thinker is a transport whose answers begin after this time.
type thinker time.Duration

func (th thinker) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(th)):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	body := content("done") + "\n\n" + stop + "\n\n" + done + "\n\n"
	return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(body))}, nil
}
