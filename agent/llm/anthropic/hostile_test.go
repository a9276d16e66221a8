package anthropic

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// serve returns a model whose server calls handle.
func serve(t *testing.T, handle http.HandlerFunc) *Model {
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	return New("claude", "m", &Options{BaseURL: srv.URL, Key: "secret-key"})
}

// A redirect sends the key and the conversation to no other host.
func TestRedirect(t *testing.T) {
	asked := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("X-Api-Key")
	}))
	defer other.Close()
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	if _, _, err := collect(t.Context(), m, ask("hello")); err == nil {
		t.Error("a redirect is an answer")
	}
	select {
	case key := <-asked:
		t.Errorf("another host was asked, with the key %q", key)
	default:
	}
}

// The answer is returned after its last event, even if the server keeps the connection open.
func TestLastEvent(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"type":"content_block_start","content_block":{"type":"text"}}
data: {"type":"content_block_delta","delta":{"text":"hi"}}
data: {"type":"message_stop"}
`)
		w.(http.Flusher).Flush()
		<-r.Context().Done() // until the client disconnects
	})
	text, r, err := collect(t.Context(), m, ask("hello"))
	if err != nil || text != "hi" || r.Message.Text != "hi" {
		t.Errorf("got %q, %+v, %v", text, r, err)
	}
}

// Some proxies omit the last event, or send OpenAI's, and some send empty data. Without a reason
// why it ended, an answer is not complete. See https://github.com/huggingface/tau/pull/680 and 692.
func TestOtherEnd(t *testing.T) {
	const reason = `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n"
	for end, complete := range map[string]bool{reason: true, reason + "data: [DONE]\n": true,
		"data:\n\ndata: \n\n" + reason + `data: {"type":"message_stop"}` + "\n": true,
		"": false, "data: [DONE]\n": false} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"type":"content_block_start","content_block":`+
				`{"type":"text","text":"hi"}}`+"\n"+end)
		})
		_, r, err := collect(t.Context(), m, ask("hello"))
		if (err == nil) != complete || complete && r.Message.Text != "hi" {
			t.Errorf("%q: got %+v, %v", end, r, err)
		}
	}
}

// Some proxies send the whole input of a call at its beginning, let calls overlap, or send a text
// while a call is open. See https://github.com/AntSeed/antseed/pull/15,
// https://github.com/praxis-proxy/ai/pull/273 and https://github.com/sgl-project/sglang/pull/24294.
func TestOddParts(t *testing.T) {
	const (
		begin0 = `"start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}`
		begin1 = `"start","index":1,"content_block":{"type":"tool_use","id":"b","name":"g","input":{}`
		whole  = `"start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":` +
			`{"x":1}`
		text = `"delta","index":0,"delta":{"type":"text_delta","text":"hi"`
	)
	input := func(index int, piece string) string {
		return fmt.Sprintf(`"delta","index":%d,"delta":{"partial_json":%q`, index, piece)
	}
	for name, test := range map[string]struct {
		events []string
		want   string
	}{
		"whole input":         {[]string{whole}, `f{"x":1}`},
		"whole input, pieces": {[]string{whole, input(0, `{"x":1}`)}, `f{"x":1}`},
		"overlap": {[]string{begin0, begin1, input(0, `{"x"`), input(1, `{"y"`), input(0, `:1}`),
			input(1, `:2}`)}, `f{"x":1}g{"y":2}`},
		"text within a call": {[]string{begin0, input(0, `{"x"`), text, input(0, `:1}`), text},
			`hihif{"x":1}`},
		"only text":        {[]string{text, text}, `hihi`},
		"index of nothing": {[]string{begin0, input(7, `{"x":1}`)}, `f{"x":1}`},
	} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range test.events {
				fmt.Fprintf(w, `data: {"type":"content_block_%s}}`+"\n", e[1:])
			}
			fmt.Fprintln(w, `data: {"type":"message_stop"}`)
		})
		_, r, err := collect(t.Context(), m, ask("hello"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := r.Message.Text
		for _, c := range r.Message.ToolCalls {
			got += c.Name + c.Arguments
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// Some servers with this interface send an empty object before the arguments of a call, or send the
// arguments twice. See https://github.com/openclaw/openclaw/pull/44237.
func TestRepeatedArguments(t *testing.T) {
	for _, pieces := range [][]string{{`{}`, `{"x"`, `:1}`}, {`{"x":1}`, `{"x":1}`}} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintln(w, `data: {"type":"content_block_start","content_block":`+
				`{"type":"tool_use","id":"a","name":"f","input":{}}}`)
			for _, piece := range pieces {
				fmt.Fprintf(w, `data: {"type":"content_block_delta","delta":{"partial_json":%q}}`+"\n", piece)
			}
			fmt.Fprintln(w, `data: {"type":"message_stop"}`)
		})
		_, r, err := collect(t.Context(), m, ask("hello"))
		if err != nil || len(r.Message.ToolCalls) != 1 ||
			r.Message.ToolCalls[0].Arguments != `{"x":1}` {
			t.Errorf("%q: got %+v, %v", pieces, r, err)
		}
	}
}

// An answer is complete if the stream ends between its reason to stop and its last event, as behind
// some proxies. See https://github.com/sudoprivacy/sudocode/pull/576. An error that a proxy puts
// into the stream is one without a type, too.
func TestStreamsOfProxies(t *testing.T) {
	const begin = `data: {"type":"content_block_start","content_block":{"type":"text","text":"hi"}}
`
	const delta = `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}
`
	for stream, want := range map[string]llm.Kind{
		begin + delta: "",
		begin + delta + "event: message_stop\ndata: {\"ty": "",
		begin: llm.Unavailable,
		begin + `data: {"error":{"message":"rate limit reached","code":429}}`: llm.RateLimited,
	} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, stream)
		})
		text, _, err := collect(t.Context(), m, ask("hello"))
		kind := llm.Kind("")
		if e, ok := errors.AsType[*llm.Error](err); ok {
			kind = e.Kind
		}
		if kind != want || text != "hi" {
			t.Errorf("%s: got %q, %v, want %q", stream, text, err, want)
		}
	}
}

// A call without arguments has an empty object as arguments, but not if the limit of the answer has
// cut off its arguments. A later event of the same type may bring only the usage.
func TestNoArguments(t *testing.T) {
	for reason, want := range map[string]string{"tool_use": "{}", "max_tokens": "", "refusal": ""} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, `data: {"type":"content_block_start","content_block":`+
				`{"type":"tool_use","id":"a","name":"f","input":{}}}
data: {"type":"message_delta","delta":{"stop_reason":%q}}
data: {"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":9}}
data: {"type":"message_stop"}
`, reason)
		})
		_, r, err := collect(t.Context(), m, ask("hello"))
		if err != nil || len(r.Message.ToolCalls) != 1 || r.Message.ToolCalls[0].Arguments != want {
			t.Errorf("%s: got %+v, %v", reason, r, err)
		}
	}
}

// The client stops reading an answer that never ends, whatever it consists of.
func TestEndlessAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		event string
		want  error
	}{
		"thoughts": {`{"type":"content_block_delta","delta":{"thinking":"%s"}}`, errTooLong},
		"names": {`{"type":"content_block_start","content_block":{"type":"text","name":"%s"}}`,
			errTooLong},
		"ids":   {`{"type":"content_block_start","content_block":{"type":"text","id":"%s"}}`, errTooLong},
		"types": {`{"type":"content_block_start","content_block":{"type":"%s"}}`, errTooLong},
		"calls": {`{"type":"content_block_start","content_block":{"type":"tool_use"},"x":"%.10s"}`,
			wire.ErrManyCalls},
	} {
		t.Run(name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, err := io.WriteString(w,
					`data: {"type":"content_block_start","content_block":{"type":"thinking"}}`+"\n")
				piece := fmt.Sprintf("data: "+tt.event+"\n", strings.Repeat("x", 1<<20))
				for n := 0; n < min(2*maxAnswer/len(piece), 2*wire.MaxCalls) && err == nil; n++ {
					_, err = io.WriteString(w, piece)
				}
			})
			if _, _, err := collect(t.Context(), m, ask("hello")); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// Numbers of tokens that can't be true are bounded, and those that are not integers are ignored.
func TestFalseUsage(t *testing.T) {
	for _, tt := range []struct {
		tokens string
		want   llm.Usage
	}{
		{"-5000000", llm.Usage{}},
		{"9223372036854775807", llm.Usage{Input: 3e9, Output: 1e9, Cached: 1e9}},
		{"9223372036854775808", llm.Usage{}},
		{"12.5", llm.Usage{}},
		{`"12"`, llm.Usage{}},
		{`{"total":12}`, llm.Usage{}},
	} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, strings.ReplaceAll(`data: {"type":"message_start",`+
				`"message":{"usage":{"input_tokens":N,"output_tokens":N,"cache_creation_input_tokens":N,`+
				`"cache_read_input_tokens":N}}}`+"\ndata: {\"type\":\"message_stop\"}\n", "N", tt.tokens))
		})
		_, r, err := collect(t.Context(), m, ask("hello"))
		if err != nil || r.Usage != tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.tokens, r, err, tt.want)
		}
	}
}

// The error of Anthropic for a prompt that is too long has the kind [llm.ContextTooLong], which
// leads to a shorter prompt.
func TestContextLimit(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":`+
			`"input length and max_tokens exceed context limit: 188240 + 21333 > 200000"}}`)
	})
	_, _, err := collect(t.Context(), m, ask("hello"))
	if e, ok := errors.AsType[*llm.Error](err); !ok || e.Kind != llm.ContextTooLong {
		t.Errorf("got %v", err)
	}
}

// A failure that comes as JSON with a status of success says what happened.
func TestFailureWithoutStatus(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"error","error":{"type":"authentication_error","message":"no such key"}}`: "" +
			"unauthorized: authentication_error: no such key",
		`{"code":500,"msg":"404 NOT_FOUND","success":false}`: "unavailable: status 500: 404 NOT_FOUND",
		`{"type":"message","content":[{"type":"text","text":"private"}]}`: "" +
			"unavailable: the provider does not stream its answers",
	} {
		want = "llm: claude: " + want
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, body)
		})
		if _, _, err := collect(t.Context(), m, ask("hello")); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

// A stream is read even if it has the Content-Type of JSON.
func TestStreamAsJSON(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `data: {"type":"content_block_start","content_block":{"type":"text"}}
data: {"type":"content_block_delta","delta":{"text":"hi"}}
data: {"type":"message_stop"}
`)
	})
	if text, _, err := collect(t.Context(), m, ask("hello")); err != nil || text != "hi" {
		t.Errorf("got %q, %v", text, err)
	}
}

// Servers with Anthropic's interface may repeat ids. A repeated one would give a call the result of
// another one, so it is replaced.
func TestRepeatedIDs(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, id := range []string{"call_0", "call_1", "call_1", ""} {
			fmt.Fprintf(w, `data: {"type":"content_block_start",`+
				`"content_block":{"type":"tool_use","id":%q,"name":"look"}}`+"\n", id)
		}
		_, _ = io.WriteString(w, `data: {"type":"message_stop"}`+"\n")
	})
	req := ask("hello")
	req.Messages = append(req.Messages,
		llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "call_0", Name: "look"}}},
		llm.Message{Role: llm.ToolRole, ToolCallID: "call_0", Text: "seen"})
	_, r, err := collect(t.Context(), m, req)
	if err != nil || len(r.Message.ToolCalls) != 4 {
		t.Fatalf("got %+v, %v", r, err)
	}
	used := map[string]bool{"": true, "call_0": true}
	for i, c := range r.Message.ToolCalls {
		if used[c.ID] || i == 1 && c.ID != "call_1" {
			t.Errorf("call %d has the id %q", i, c.ID)
		}
		used[c.ID] = true
	}
}
