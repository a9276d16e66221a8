package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gateway/agent/llm"
)

// strict returns a model whose server refuses requests that contain field, with status 400 and the
// given error, and a function that returns how many requests it has refused.
func strict(t *testing.T, id, field, message string) (*Model, func() int) {
	refused := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), `"`+field+`"`) {
			refused++
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	m := New("test", id, &Options{BaseURL: srv.URL, HTTP: srv.Client()})
	return m, func() int { return refused }
}

// A server that refuses a field gets no such field any more. One refusal is enough.
func TestRefusedFields(t *testing.T) {
	for _, tt := range []struct{ id, field, message string }{
		// Azure AI. See https://github.com/microsoft/semantic-kernel/issues/10510.
		{"m", "stream_options", "Validation error at #/stream_options: Extra inputs are not permitted"},
		// An older vLLM. See https://github.com/modelscope/ms-agent/issues/489.
		{"m", "stream_options", "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), " +
			"'msg': 'Extra inputs are not permitted', 'input': {}}]"},
		// Groq behind a proxy. See https://github.com/janhq/jan/issues/8136.
		{"gpt-oss", "channel", "'messages.2' : for 'role:assistant' the following must be satisfied" +
			"[('messages.2' : property 'channel' is unsupported)]"},
		// See https://github.com/tashfeenahmed/freellmapi/issues/1070.
		{"moonshotai/kimi-k2-instruct", "reasoning_content", "'messages.1' : for 'role:assistant' " +
			"the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]"},
		{"deepseek-v3", "reasoning_content", "Extra inputs are not permitted, field: " +
			"'messages[2].reasoning_content', value: ' '"},
	} {
		m, refused := strict(t, tt.id, tt.field, tt.message)
		req := conversation(map[string]json.RawMessage{"channel": json.RawMessage(`"final"`)})
		for range 3 {
			if text, _, err := collect(t.Context(), m, req); err != nil || text != "done" {
				t.Errorf("%s: got %q, %v", tt.field, text, err)
			}
		}
		if n := refused(); n != 1 {
			t.Errorf("%s: %d requests were refused, want 1", tt.field, n)
		}
	}
}

// A server that wants a field, or refuses one that the request does not have, is asked once.
func TestWantedFields(t *testing.T) {
	for _, tt := range []struct{ id, message string }{
		{"deepseek-v4", "The `reasoning_content` in the thinking mode must be passed back to the API."},
		{"m", "property 'reasoning_content' is unsupported"},
		{"m", "unknown model"},
	} {
		m, refused := strict(t, tt.id, "model", tt.message)
		_, _, err := collect(t.Context(), m, conversation(nil))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.BadRequest || refused() != 1 {
			t.Errorf("%s: got %v after %d requests", tt.message, err, refused())
		}
	}
}
