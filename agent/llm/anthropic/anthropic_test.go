package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/anthropic/anthropictest"
)

func say(r anthropictest.Reply) func(anthropictest.Request) anthropictest.Reply {
	return func(anthropictest.Request) anthropictest.Reply { return r }
}

func start(
	t *testing.T, answer func(anthropictest.Request) anthropictest.Reply,
) (*anthropictest.Server, *Model) {
	srv := anthropictest.Start(t, "secret-key", answer)
	return srv, New("claude", "claude-sonnet-5-5", &Options{BaseURL: srv.URL, Key: "secret-key"})
}

// collect returns the streamed text and the response.
func collect(ctx context.Context, m *Model, req llm.Request) (string, *llm.Response, error) {
	var text string
	for e, err := range m.Stream(ctx, req) {
		if err != nil {
			return text, nil, err
		}
		text += e.Text
		if e.Response != nil {
			return text, e.Response, nil
		}
	}
	return text, nil, errors.New("no answer")
}

func ask(text string) llm.Request {
	return llm.Request{Messages: []llm.Message{
		{Role: llm.System, Text: "be brief"}, {Role: llm.User, Text: text}}}
}

func TestAnswer(t *testing.T) {
	srv, m := start(t, say(anthropictest.Reply{Text: "Grüße, 世界!"}))
	text, r, err := collect(t.Context(), m, ask("hello"))
	if err != nil || text != "Grüße, 世界!" || r.Message.Text != text || r.Finish != llm.FinishStop ||
		r.Usage.Input == 0 || r.Usage.Output != 3 || r.Model != "claude" {
		t.Errorf("got %q, %+v, %v", text, r, err)
	}
	got := srv.Requests()[0]
	if got.MaxTokens != defaultMaxOutput || got.System[0].Text != "be brief" ||
		got.Model != "claude-sonnet-5-5" || got.Messages[0].Content[0].Text != "hello" {
		t.Errorf("the request is %s", got.Body)
	}
}

// In a round with tools, the signed thoughts are sent back and the results follow their calls.
// The second request finds the first one in the cache.
func TestTools(t *testing.T) {
	srv, m := start(t, func(r anthropictest.Request) anthropictest.Reply {
		if len(r.Messages) == 1 {
			return anthropictest.Reply{Thinking: "two files", Text: "I look.",
				Calls: []anthropictest.Call{
					{ID: "toolu_1", Name: "read", Input: `{"path":"a"}`}, {ID: "toolu_2", Name: "list"}}}
		}
		return anthropictest.Reply{Text: "done"}
	})
	req := ask("look")
	req.Tools = []llm.ToolSpec{{Name: "read", Description: "reads",
		Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
		{Name: "list"}}
	_, r, err := collect(t.Context(), m, req)
	if err != nil || r.Finish != llm.FinishToolCalls || len(r.Message.ToolCalls) != 2 ||
		r.Message.ToolCalls[0].Arguments != `{"path":"a"}` ||
		r.Message.ToolCalls[1].Arguments != "{}" || r.Message.Reasoning != "two files" {
		t.Fatalf("got %+v, %v", r, err)
	}
	kept, err := json.Marshal(r.Message) // as a transcript does
	if err != nil {
		t.Fatal(err)
	}
	var back llm.Message
	if err := json.Unmarshal(kept, &back); err != nil {
		t.Fatal(err)
	}
	req.Messages = append(req.Messages, back,
		llm.Message{Role: llm.ToolRole, ToolCallID: "toolu_1", Text: "A"},
		llm.Message{Role: llm.ToolRole, ToolCallID: "toolu_2"},
		llm.Message{Role: llm.User, Text: "hurry"})
	_, last, err := collect(t.Context(), m, req)
	if err != nil || last.Message.Text != "done" {
		t.Fatalf("got %+v, %v", last, err)
	}
	if first := r.Usage; last.Usage.Cached < first.Input/2 || first.Cached != 0 {
		t.Errorf("the calls used %+v and %+v, want the second to find the first in the cache",
			first, last.Usage)
	}
	second := srv.Requests()[1].Messages
	if len(second) != 3 || second[1].Content[0].Thinking != "two files" ||
		len(second[2].Content) != 3 {
		t.Errorf("the second request has %+v", second)
	}
}

// Thoughts between texts and calls are sent back in their places: the API refuses a request in
// which they have others. See https://github.com/BerriAI/litellm/issues/23047.
func TestThoughtsInPlace(t *testing.T) {
	_, m := start(t, func(r anthropictest.Request) anthropictest.Reply {
		if len(r.Messages) == 1 {
			return anthropictest.Reply{Thinking: "first", Text: "I look. ",
				Calls: []anthropictest.Call{{ID: "toolu_1", Name: "read", Input: `{"path":"a"}`}},
				Then: &anthropictest.Reply{Thinking: "second", Text: "And here.",
					Calls: []anthropictest.Call{{ID: "toolu_2", Name: "list"}}}}
		}
		return anthropictest.Reply{Text: "done"}
	})
	req := ask("look")
	req.Tools = []llm.ToolSpec{{Name: "read"}, {Name: "list"}}
	_, r, err := collect(t.Context(), m, req)
	if err != nil || r.Message.Text != "I look. And here." || len(r.Message.ToolCalls) != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	req.Messages = append(req.Messages, r.Message,
		llm.Message{Role: llm.ToolRole, ToolCallID: "toolu_1", Text: "A"},
		llm.Message{Role: llm.ToolRole, ToolCallID: "toolu_2", Text: "B"})
	if _, last, err := collect(t.Context(), m, req); err != nil || last.Message.Text != "done" {
		t.Errorf("got %+v, %v", last, err)
	}
	// The calls of an answer that was changed since are still answered.
	req.Messages[2].Text = "changed"
	blocks := m.assistantBlocks(req.Messages[2])
	var kinds []string
	for _, b := range blocks {
		kinds = append(kinds, b.Type)
	}
	want := []string{"thinking", "thinking", "text", "tool_use", "tool_use"}
	if !slices.Equal(kinds, want) {
		t.Errorf("a changed answer has %v, want %v", kinds, want)
	}
}

// A thought at the end of an answer is not sent back: the API refuses it. See
// https://github.com/tailcallhq/forgecode/issues/3071.
func TestThoughtAtEnd(t *testing.T) {
	for name, reply := range map[string]anthropictest.Reply{
		"cut off within a thought": {Text: "I look.", Stop: "max_tokens",
			Then: &anthropictest.Reply{Thinking: "at what"}},
		"blank text after it": {Text: "I look.",
			Then: &anthropictest.Reply{Thinking: "done", Text: "\n"}},
		"only a thought": {Thinking: "nothing to say"},
	} {
		_, m := start(t, func(r anthropictest.Request) anthropictest.Reply {
			if len(r.Messages) == 1 {
				return reply
			}
			return anthropictest.Reply{Text: "done"}
		})
		req := ask("look")
		_, r, err := collect(t.Context(), m, req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		req.Messages = append(req.Messages, r.Message, llm.Message{Role: llm.User, Text: "and?"})
		if _, last, err := collect(t.Context(), m, req); err != nil || last.Message.Text != "done" {
			t.Errorf("%s: got %+v, %v", name, last, err)
		}
	}
}

// Histories of other models are changed so that the API accepts them.
func TestRepaired(t *testing.T) {
	srv, m := start(t, say(anthropictest.Reply{Text: "ok"}))
	picture := llm.Image{Path: "a.png", Type: "image/png", Data: []byte("x")}
	for name, messages := range map[string][]llm.Message{
		"begins with an answer": {{Role: llm.Assistant, Text: "earlier"}, {Role: llm.User, Text: "x"}},
		"blank":                 {{Role: llm.User, Text: " \n"}},
		"blank answer": {{Role: llm.User, Text: "a"}, {Role: llm.Assistant},
			{Role: llm.User, Text: "b"}},
		"no-break space before a call": {{Role: llm.User, Text: "a"},
			{Role: llm.Assistant, Text: "\u00a0",
				ToolCalls: []llm.ToolCall{{ID: "toolu_1", Name: "read", Arguments: "{}"}}},
			{Role: llm.ToolRole, ToolCallID: "toolu_1", Text: "A"}},
		"two of one side": {{Role: llm.User, Text: "a"}, {Role: llm.User, Text: "b"}},
		"picture":         {{Role: llm.User, Images: []llm.Image{picture, {Path: "b.png"}}}},
		"another's call": {{Role: llm.User, Text: "a"}, {Role: llm.Assistant,
			ToolCalls: []llm.ToolCall{{ID: "functions.read:0", Name: "read file", Arguments: "broken"}},
			Extra: map[string]json.RawMessage{thoughtsKey: json.RawMessage(`[{"type":"thinking"}]`),
				originKey: json.RawMessage(`"elsewhere"`)}},
			{Role: llm.ToolRole, ToolCallID: "functions.read:0", Text: "A"}},
	} {
		req := llm.Request{Messages: append([]llm.Message{{Role: llm.System, Text: "s"}}, messages...)}
		if _, _, err := collect(t.Context(), m, req); err != nil {
			t.Errorf("%s: %v\n%s", name, err, srv.Requests()[len(srv.Requests())-1].Body)
		}
	}
}

// A request whose history has calls, but which offers no tools, still names the tools because the
// API requires it. It sets tool_choice to none.
func TestNoMoreTools(t *testing.T) {
	srv, m := start(t, say(anthropictest.Reply{Text: "done"}))
	req := ask("look")
	req.Messages = append(req.Messages,
		llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{
			{ID: "1", Name: "read", Arguments: "{}"}, {ID: "2", Name: "read", Arguments: "{}"}}},
		llm.Message{Role: llm.ToolRole, ToolCallID: "1", Text: "A"},
		llm.Message{Role: llm.ToolRole, ToolCallID: "2", Text: "B"})
	if _, _, err := collect(t.Context(), m, req); err != nil {
		t.Fatal(err)
	}
	r := srv.Requests()[0]
	if len(r.Tools) != 1 || r.Tools[0].Name != "read" ||
		string(r.Other) != `{"tool_choice":{"type":"none"}}` {
		t.Errorf("the request has the tools %+v and %s", r.Tools, r.Other)
	}
}

func TestFinish(t *testing.T) {
	for stop, want := range map[string]llm.Finish{"max_tokens": llm.FinishLength,
		"refusal": llm.FinishFiltered, "stop_sequence": llm.FinishStop,
		"model_context_window_exceeded": llm.FinishLength} {
		_, m := start(t, say(anthropictest.Reply{Text: "x", Stop: stop}))
		if _, r, err := collect(t.Context(), m, ask("x")); err != nil || r.Finish != want {
			t.Errorf("%s: got %+v, %v", stop, r, err)
		}
	}
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		reply anthropictest.Reply
		want  llm.Kind
	}{
		"rate":      {anthropictest.Reply{Status: 429, Kind: "rate_limit_error"}, llm.RateLimited},
		"busy":      {anthropictest.Reply{Status: 529, Kind: "overloaded_error"}, llm.Overloaded},
		"too large": {anthropictest.Reply{Status: 413, Kind: "request_too_large"}, llm.ContextTooLong},
		"no model":  {anthropictest.Reply{Status: 404, Kind: "not_found_error"}, llm.NotFound},
		"forbidden": {anthropictest.Reply{Status: 403, Kind: "permission_error"}, llm.Forbidden},
		"billing":   {anthropictest.Reply{Status: 402, Kind: "billing_error"}, llm.OutOfQuota},
		"broken":    {anthropictest.Reply{Status: 500, Kind: "api_error"}, llm.Unavailable},
		"in stream": {anthropictest.Reply{Text: "a", Kind: "overloaded_error"}, llm.Overloaded},
		"cut":       {anthropictest.Reply{Text: "a", Cut: true}, llm.Unavailable},
	} {
		_, m := start(t, say(test.reply))
		_, _, err := collect(t.Context(), m, ask("x"))
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != test.want || e.Model != "claude" {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
	srv, _ := start(t, nil)
	wrong := New("claude", "m", &Options{BaseURL: srv.URL, Key: "another-key"})
	var e *llm.Error
	_, _, err := collect(t.Context(), wrong, ask("x"))
	if !errors.As(err, &e) || e.Kind != llm.Unauthorized ||
		strings.Contains(err.Error(), "another-key") {
		t.Errorf("a wrong key: got %v", err)
	}
}

// The Fields and Headers of a model are added to its requests.
func TestFields(t *testing.T) {
	srv := anthropictest.Start(t, "k", say(anthropictest.Reply{Text: "x"}))
	m := New("claude", "m", &Options{BaseURL: srv.URL + "/v1", Key: "k",
		Headers: map[string]string{"X-Team": "red"}, Fields: map[string]json.RawMessage{
			"temperature": json.RawMessage("0.5"), "output_config": json.RawMessage(`{"effort":"low"}`)}})
	if _, _, err := collect(t.Context(), m, ask("x")); err != nil {
		t.Fatal(err)
	}
	r := srv.Requests()[0]
	if got := string(r.Other); got != `{"output_config":{"effort":"low"},"temperature":0.5}` ||
		r.Header.Get("X-Team") != "red" {
		t.Errorf("the request has %s and %v", got, r.Header)
	}
}

// A call ends with an error if the provider stays silent too long. If the context ends, the error
// is the context's.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("claude", "m",
			&Options{BaseURL: "http://unused", HTTP: silent(), IdleTimeout: time.Second})
		_, _, err := collect(t.Context(), m, ask("x"))
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.TimedOut {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := collect(ctx, m, ask("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// A call ends with an error if the provider refuses it and never sends all of the reason.
func TestSilentRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
			return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{},
				Body: body}, nil
		})}
		m := New("claude", "m", &Options{BaseURL: "http://unused", HTTP: begun})
		_, _, err := collect(t.Context(), m, ask("x"))
		if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.TimedOut {
			t.Errorf("got %v", err)
		}
	})
}

// silent returns a client whose server never answers.
func silent() *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
