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
	"testing/synctest"
	"time"

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

// Proxies in front of Claude refuse an empty text beside calls of tools. See
// https://github.com/NousResearch/hermes-agent/issues/31583.
func TestEmptyTextIsLearned(t *testing.T) {
	refused := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []struct{ Content *string } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		for _, m := range body.Messages {
			if m.Content != nil && strings.TrimSpace(*m.Content) == "" {
				refused++
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error":{"message":"messages: text content blocks must be non-empty"}}`)
				return
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
	}))
	defer srv.Close()
	m := New("test", "m", &Options{BaseURL: srv.URL, HTTP: srv.Client()})
	for _, said := range []string{"", "\n\n"} {
		req := conversation(nil)
		req.Messages[2].Text, req.Messages[3].Text = said, "seen"
		if text, _, err := collect(t.Context(), m, req); err != nil || text != "done" {
			t.Errorf("got %q, %v", text, err)
		}
	}
	if refused != 1 {
		t.Errorf("%d requests were refused, want 1", refused)
	}
}

// Mistral's models want an answer between the results of tools and a message of the user. If their
// name does not tell, llama.cpp's error does. See
// https://github.com/eclipse-theia/theia/issues/17104.
func TestBridgeIsLearned(t *testing.T) {
	const message = "\n------------\nWhile executing CallExpression at line 189, column 32 in " +
		"source:\nError: Jinja Exception: After the optional system message, conversation roles must " +
		"alternate user and assistant roles except for tool calls and results."
	refused := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []struct{ Role llm.Role } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		for i, m := range body.Messages {
			if i > 0 && m.Role == llm.User && body.Messages[i-1].Role == llm.ToolRole {
				refused++
				w.WriteHeader(http.StatusInternalServerError)
				_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
					"code": 500, "message": message, "type": "server_error"}})
				return
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
	}))
	defer srv.Close()
	m := New("test", "local", &Options{BaseURL: srv.URL, HTTP: srv.Client()})
	req := conversation(nil)
	req.Messages = append(req.Messages, llm.Message{Role: llm.User, Text: "and now?"})
	for range 3 {
		if text, _, err := collect(t.Context(), m, req); err != nil || text != "done" {
			t.Errorf("got %q, %v", text, err)
		}
	}
	if refused != 1 {
		t.Errorf("%d requests were refused, want 1", refused)
	}
}

// Mistral's models want ids of nine letters and digits. A server of such a model may give its own
// calls other ids, and so do other models whose conversation goes on here.
func TestShortIDsOfMistral(t *testing.T) {
	for _, tt := range []struct {
		id, message string
		refused     int
	}{
		{"devstral-small", "", 0},
		// llama.cpp. See https://github.com/ggml-org/llama.cpp/pull/14349.
		{"local", "Tool call IDs should be alphanumeric strings with length 9! at row 91", 1},
		// oMLX. See https://github.com/jundot/omlx/pull/1997.
		{"local", "Tool call id was call_49c89af0 but must be a-z, A-Z, 0-9, with a length of 9", 1},
	} {
		refused := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || strings.Contains(string(body), "call_49c89af0") {
				refused++
				w.WriteHeader(http.StatusInternalServerError)
				_ = json.NewEncoder(w).Encode(map[string]any{"error": tt.message})
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
		}))
		m := New("test", tt.id, &Options{BaseURL: srv.URL, HTTP: srv.Client()})
		req := ask("look")
		req.Messages = append(req.Messages, llm.Message{Role: llm.Assistant,
			ToolCalls: []llm.ToolCall{{ID: "call_49c89af0", Name: "look", Arguments: "{}"}}},
			llm.Message{Role: llm.ToolRole, ToolCallID: "call_49c89af0", Text: "seen"})
		for range 2 {
			if text, _, err := collect(t.Context(), m, req); err != nil || text != "done" {
				t.Errorf("%s: got %q, %v", tt.message, text, err)
			}
		}
		if refused != tt.refused {
			t.Errorf("%s: %d requests were refused, want %d", tt.message, refused, tt.refused)
		}
		srv.Close()
	}
}

// A provider that wants its reasoning back says so once.
func TestReasoningBackIsLearned(t *testing.T) {
	for _, message := range []string{
		// See https://github.com/NousResearch/hermes-agent/pull/24605.
		`{"message":"Param Incorrect","type":"","code":"400",` +
			`"param":"The reasoning_content in the thinking mode must be passed back to the API."}`,
		`{"message":"thinking is enabled but reasoning_content is missing in assistant tool call ` +
			`message at index 2","type":"invalid_request_error"}`,
	} {
		refused := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || !strings.Contains(string(body), `"reasoning_content":"why not"`) {
				refused++
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"error":%s}`, message)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
		}))
		m := New("test", "mimo-v2.5-pro", &Options{BaseURL: srv.URL, HTTP: srv.Client()})
		for range 2 {
			if text, _, err := collect(t.Context(), m, conversation(nil)); err != nil || text != "done" {
				t.Errorf("got %q, %v", text, err)
			}
		}
		if refused != 1 {
			t.Errorf("%d requests were refused, want 1", refused)
		}
		srv.Close()
	}
}

// OpenAI's newer models take tools only without reasoning, which they do by default. An effort that
// the configuration asks for is not changed: the error says what to do. See
// https://github.com/laurent22/joplin/pull/16451.
func TestToolsWithoutReasoning(t *testing.T) {
	const message = "Function tools with reasoning_effort are not supported for gpt-6-astra in " +
		"/v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to " +
		"'none'."
	for _, tt := range []struct {
		effort  string
		refused int
	}{{"", 1}, {`"high"`, 2}} {
		refused := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			tools := strings.Contains(string(body), `"tools"`)
			none := strings.Contains(string(body), `"reasoning_effort":"none"`)
			if err != nil || tools != none {
				refused++
				w.WriteHeader(http.StatusBadRequest)
				_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
					"message": message, "param": "reasoning_effort"}})
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, content("done")+"\n\ndata: [DONE]\n\n")
		}))
		opts := &Options{BaseURL: srv.URL, HTTP: srv.Client()}
		if tt.effort != "" {
			opts.Fields = map[string]json.RawMessage{"reasoning_effort": json.RawMessage(tt.effort)}
		}
		m := New("test", "astra", opts)
		req := ask("look")
		req.Tools = []llm.ToolSpec{{Name: "look", Schema: json.RawMessage(`{}`)}}
		for range 2 {
			text, _, err := collect(t.Context(), m, req)
			if (err == nil) != (tt.effort == "") || err == nil && text != "done" {
				t.Errorf("effort %q: got %q, %v", tt.effort, text, err)
			}
		}
		if refused != tt.refused {
			t.Errorf("effort %q: %d requests were refused, want %d", tt.effort, refused, tt.refused)
		}
		if tt.effort == "" { // without tools the model may reason
			if text, _, err := collect(t.Context(), m, ask("think")); err != nil || text != "done" {
				t.Errorf("without tools: got %q, %v", text, err)
			}
		}
		srv.Close()
	}
}

// OpenAI streams answers of some models only for organizations that it has verified. Others get
// whole answers, which take longer than IdleTimeout. See
// https://github.com/openai/codex/issues/1982.
func TestNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &unverified{}
		m := New("test", "gpt-5", &Options{HTTP: &http.Client{Transport: slow}})
		for range 2 {
			text, resp, err := collect(t.Context(), m, ask("x"))
			if err != nil || text != "done" || resp.Usage.Input != 7 {
				t.Errorf("got %q, %v, %v", text, resp, err)
			}
		}
		if len(slow.bodies) != 3 || strings.Contains(slow.bodies[2], "stream_options") {
			t.Errorf("the requests are %q", slow.bodies)
		}
	})
}

// unverified is a transport that refuses to stream, and answers other requests after some minutes.
type unverified struct{ bodies []string }

func (u *unverified) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	u.bodies = append(u.bodies, string(body))
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}}
	answer := `{"choices":[{"index":0,"message":{"role":"assistant","content":"done"},` +
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`
	if strings.Contains(string(body), `"stream":true`) {
		resp.StatusCode = 400
		answer = `{"error":{"message":"Your organization must be verified to stream this model. ` +
			`Please go to: https://platform.openai.com/settings/organization/general and click on ` +
			`Verify Organization.","type":"invalid_request_error","param":"stream",` +
			`"code":"unsupported_value"}}`
	} else {
		select {
		case <-time.After(5 * time.Minute):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	resp.Body = io.NopCloser(strings.NewReader(answer))
	return resp, nil
}
