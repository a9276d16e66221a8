package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
	"gateway/agent/llm/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a fake server and a model that uses it.
func start(t *testing.T, answer openaitest.Answer) (*openaitest.Server, *Model) {
	t.Helper()
	srv := openaitest.Start(answer)
	t.Cleanup(srv.Close)
	return srv, newModel(t, srv, "fake-model", Options{})
}

// newModel returns a model of srv. Its connections are closed when the test ends.
func newModel(t *testing.T, srv *openaitest.Server, id string, o Options) *Model {
	t.Helper()
	o.BaseURL = srv.URL
	o.HTTP = wire.NewClient()
	t.Cleanup(o.HTTP.CloseIdleConnections)
	return New("test", id, &o)
}

func ask(text string) llm.Request {
	return llm.Request{Messages: []llm.Message{
		{Role: llm.System, Text: "be brief"}, {Role: llm.User, Text: text},
	}}
}

// collect reads a whole stream. The text is the one that a person sees in the end.
func collect(ctx context.Context, m llm.Model, req llm.Request) (string, *llm.Response, error) {
	var text strings.Builder
	for e, err := range m.Stream(ctx, req) {
		if err != nil {
			return text.String(), nil, err
		}
		if e.Reset {
			text.Reset()
		}
		text.WriteString(e.Text)
		if e.Response != nil {
			return text.String(), e.Response, nil
		}
	}
	return text.String(), nil, errors.New("no last event")
}

func frames(lines ...string) openaitest.Answer {
	return func(openaitest.Request) openaitest.Reply { return openaitest.Reply{Frames: lines} }
}

// content returns a frame with visible text.
func content(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":%s}}]}`, text)
}

const (
	stop = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	done = "data: [DONE]"
)

func TestStream(t *testing.T) {
	srv, m := start(t, nil)
	text, resp, err := collect(t.Context(), m, ask("hello there"))
	if err != nil {
		t.Fatal(err)
	}
	want := &llm.Response{
		Message: llm.Message{Role: llm.Assistant, Text: "echo: hello there"},
		Finish:  llm.FinishStop,
		Usage:   llm.Usage{Input: 4, Output: 3},
		Model:   "test",
	}
	if text != "echo: hello there" || !reflect.DeepEqual(resp, want) {
		t.Errorf("got %q, %+v, want %+v", text, resp, want)
	}
	if got := srv.Requests()[0].Model; got != "fake-model" {
		t.Errorf("asked for model %q", got)
	}
}

func TestEventsArePieces(t *testing.T) {
	_, m := start(t, frames(content("one "), content("two"), stop, done))
	var got []string
	for e, err := range m.Stream(t.Context(), ask("x")) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Text)
	}
	if want := []string{"one ", "two", ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A stream is complete after a finish reason or after [DONE].
func TestComplete(t *testing.T) {
	keepAlives := make([]string, 400)
	for i := range keepAlives {
		keepAlives[i] = ": OPENROUTER PROCESSING"
	}
	tests := map[string][]string{
		"normal":          {content("text"), stop, done},
		"no done":         {content("text"), stop},
		"no finish":       {content("text"), done},
		"400 keep-alives": append(keepAlives, content("text"), stop, done),
		"between chunks": append(append([]string{content("te")}, keepAlives...),
			content("xt"), stop),
		"event and id lines": {"event: chunk\nid: 1\nretry: 5", content("text"), stop, done},
		"no space":           {strings.Replace(content("text"), "data: ", "data:", 1), stop, done},
		"CRLF":               {content("text") + "\r", stop + "\r", done + "\r"},
		"byte order mark":    {"\xef\xbb\xbf" + content("text"), stop, done},
		"null error": {`data: {"error":null,"choices":[{"index":0,"delta":{"content":"text"}}]}`,
			stop, done},
		"list of parts": {`data: {"choices":[{"delta":{"content":[{"type":"text","text":"te"},` +
			`{"type":"text","text":"xt"}]}}]}`, stop, done},
		"other choice": {content("text"),
			`data: {"choices":[{"index":1,"delta":{"content":"no"}}]}`, stop, done},
		"refusal": {`data: {"choices":[{"delta":{"content":null,"refusal":"text"}}]}`, stop, done},
	}
	for name, lines := range tests {
		t.Run(name, func(t *testing.T) {
			_, m := start(t, frames(lines...))
			text, resp, err := collect(t.Context(), m, ask("x"))
			if err != nil || text != "text" || resp.Message.Text != "text" {
				t.Errorf("got %q, %+v, %v", text, resp, err)
			}
		})
	}
}

// raw returns a model whose server sends exactly the body.
func raw(t *testing.T, status int, contentType, body string) *Model {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(srv.Close)
	return New("test", "fake", &Options{BaseURL: srv.URL, HTTP: srv.Client(), Key: "SECRET"})
}

func TestLastFrameWithoutNewline(t *testing.T) {
	last := `data: {"choices":[{"index":0,"delta":{"content":"LAST"},"finish_reason":"stop"}]}`
	m := raw(t, 200, "text/event-stream", content("half ")+"\n\n"+last)
	text, _, err := collect(t.Context(), m, ask("x"))
	if err != nil || text != "half LAST" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestNotStreamed(t *testing.T) {
	m := raw(t, 200, "application/json; charset=utf-8", `{
		"choices": [{"message": {"role": "assistant", "content": "whole"},
			"finish_reason": "length"}],
		"usage": {"prompt_tokens": 3, "completion_tokens": 1}
	}`)
	text, resp, err := collect(t.Context(), m, ask("x"))
	if err != nil || text != "whole" || resp.Finish != llm.FinishLength || resp.Usage.Input != 3 {
		t.Errorf("got %q, %+v, %v", text, resp, err)
	}
}

func TestMislabelledStream(t *testing.T) {
	m := raw(t, 200, "application/json", content("text")+"\n\n"+stop+"\n\n"+done+"\n\n")
	text, _, err := collect(t.Context(), m, ask("x"))
	if err != nil || text != "text" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestTruncated(t *testing.T) {
	tests := map[string]string{
		"after text":     content("half") + "\n\n",
		"within a frame": content("half") + "\n\n" + `data: {"choices":[{"ind`,
		"nothing":        "",
		"only comments":  ": hello\n\n",
		"only done":      done + "\n\n",
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			m := raw(t, 200, "text/event-stream", body)
			_, resp, err := collect(t.Context(), m, ask("x"))
			var e *llm.Error
			if !errors.Is(err, ErrTruncated) || !errors.As(err, &e) || e.Kind != llm.Unavailable {
				t.Errorf("got %+v, %v, want %v", resp, err, ErrTruncated)
			}
		})
	}
}

func TestDroppedConnection(t *testing.T) {
	srv, m := start(t, openaitest.Say("text"))
	srv.Inject(1, openaitest.Fault{DropAfter: 1})
	text, _, err := collect(t.Context(), m, ask("x"))
	if text != "text" || !errors.Is(err, ErrTruncated) {
		t.Errorf("got %q, %v, want %v", text, err, ErrTruncated)
	}
}

func TestReasoning(t *testing.T) {
	tests := map[string][]string{
		"own field": {`data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}`, content("yes")},
		"alias": {`data: {"choices":[{"delta":{"reasoning":"hm","content":""}}]}`,
			content("yes")},
		"both": {`data: {"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm"}}]}`,
			content("yes")},
		"tags": {content("<think>hm</think>yes")},
		"split tags": {content("<th"), content("ink>h"), content("m</thi"),
			content("nk>\n\nyes")},
		"tag in prompt":  {content("h"), content("m\n"), content("</think>"), content("\nyes")},
		"end held back":  {content("<think>hm</think>"), content("yes")},
		"within a piece": {content("hm</think>y"), content("es")},
	}
	for name, lines := range tests {
		t.Run(name, func(t *testing.T) {
			_, m := start(t, frames(append(lines, stop, done)...))
			text, resp, err := collect(t.Context(), m, ask("x"))
			if err != nil {
				t.Fatal(err)
			}
			got := resp.Message
			if text != "yes" || got.Text != "yes" || got.Reasoning != "hm" {
				t.Errorf("shown %q, message %q, reasoning %q", text, got.Text, got.Reasoning)
			}
		})
	}
}

// Perplexity sends each piece as a delta, and beside it all pieces so far as a message. See
// https://github.com/open-webui/open-webui/issues/9927.
func TestMessageBesideDelta(t *testing.T) {
	frame := func(whole, piece, finish string) string {
		return fmt.Sprintf(`data: {"choices":[{"index":0,"finish_reason":%s,"message":{"role":`+
			`"assistant","content":%q},"delta":{"role":"assistant","content":%q}}]}`,
			finish, whole, piece)
	}
	_, m := start(t, frames(frame("", "", "null"), frame("one", "one", "null"),
		frame("one two", " two", "null"), frame("one two", "", `"stop"`), done))
	text, resp, err := collect(t.Context(), m, ask("x"))
	if err != nil || text != "one two" || resp.Message.Text != "one two" {
		t.Errorf("shown %q, message %+v, %v", text, resp, err)
	}
	m = raw(t, 200, "application/json", `{"choices":[{"index":0,"delta":{},"finish_reason":"stop",`+
		`"message":{"role":"assistant","content":"whole"}}]}`)
	if text, _, err := collect(t.Context(), m, ask("x")); err != nil || text != "whole" {
		t.Errorf("shown %q, %v", text, err)
	}
}

func TestUsage(t *testing.T) {
	tests := map[string]struct {
		frame string
		want  llm.Usage
	}{
		"OpenAI": {`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,
			"total_tokens":12,"prompt_tokens_details":{"cached_tokens":8}}}`,
			llm.Usage{Input: 10, Output: 2, Cached: 8}},
		"DeepSeek": {`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,
			"prompt_cache_hit_tokens":7}}`, llm.Usage{Input: 10, Output: 2, Cached: 7}},
		"Moonshot": {`{"choices":[{"index":0,"delta":{},"usage":{"prompt_tokens":10,
			"completion_tokens":2,"cached_tokens":6}}]}`,
			llm.Usage{Input: 10, Output: 2, Cached: 6}},
		"Gemini": {`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,
			"total_tokens":30,"prompt_tokens_details":null}}`, llm.Usage{Input: 10, Output: 20}},
		"other types": {`{"choices":[],"usage":{"prompt_tokens":"10","completion_tokens":2,
			"total_tokens":2.5,"prompt_tokens_details":[]}}`, llm.Usage{Output: 2}},
		"no object": {`{"choices":[],"usage":[]}`, llm.Usage{}},
		"negative": {`{"choices":[],"usage":{"prompt_tokens":-9223372036854775808,"completion_tokens":2,
			"prompt_tokens_details":{"cached_tokens":-1}}}`, llm.Usage{Output: 2}},
		"huge": {`{"choices":[],"usage":{"prompt_tokens":9223372036854775807,
			"completion_tokens":9223372036854775807,"cached_tokens":9223372036854775807}}`,
			llm.Usage{Input: 1e9, Output: 1e9, Cached: 1e9}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			frame := "data: " + strings.ReplaceAll(tt.frame, "\n", " ")
			_, m := start(t, frames(content("x"), stop, frame, done))
			_, resp, err := collect(t.Context(), m, ask("x"))
			if err != nil || resp.Usage != tt.want {
				t.Errorf("got %+v, %v, want %+v", resp, err, tt.want)
			}
		})
	}
}

func TestFinish(t *testing.T) {
	for reason, want := range map[string]llm.Finish{
		"stop": llm.FinishStop, "length": llm.FinishLength, "max_tokens": llm.FinishLength,
		"model_length": llm.FinishLength, "model_context_window_exceeded": llm.FinishLength,
		"content_filter": llm.FinishFiltered, "sensitive": llm.FinishFiltered, "eos": llm.FinishStop,
		// Gemini. See https://github.com/HKUDS/Vibe-Trading/pull/308.
		"SAFETY": llm.FinishFiltered, "RECITATION": llm.FinishFiltered,
		"PROHIBITED_CONTENT": llm.FinishFiltered, "content_filter: SPII": llm.FinishFiltered,
		"STOP": llm.FinishStop, "MAX_TOKENS": llm.FinishLength,
	} {
		_, m := start(t, frames(strings.Replace(stop, "stop", reason, 1), done))
		_, resp, err := collect(t.Context(), m, ask("x"))
		if err != nil || resp.Finish != want {
			t.Errorf("%s: got %+v, %v, want %s", reason, resp, err, want)
		}
	}
	// See https://github.com/Portkey-AI/gateway/issues/785.
	_, m := start(t, frames(content("x"), strings.Replace(stop, `"stop"`, "0", 1), done))
	if _, resp, err := collect(t.Context(), m, ask("x")); err != nil ||
		resp.Finish != llm.FinishStop || resp.Message.Text != "x" {
		t.Errorf("a number: got %+v, %v", resp, err)
	}
}

func TestBreak(t *testing.T) {
	srv, m := start(t, func(openaitest.Request) openaitest.Reply {
		return openaitest.Reply{Text: []string{"a", "b"}, Fault: openaitest.Fault{HangAfter: 1}}
	})
	for range m.Stream(t.Context(), ask("x")) {
		break
	}
	if got := srv.Count(); got != 1 { // TestMain checks that no goroutine is left
		t.Errorf("%d calls", got)
	}
}

func TestCancel(t *testing.T) {
	for name, fault := range map[string]openaitest.Fault{
		"before the answer": {Hang: true}, "within": {HangAfter: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, m := start(t, func(openaitest.Request) openaitest.Reply {
				if fault.Hang {
					cancel() // the request has reached the server
				}
				return openaitest.Reply{Text: []string{"a"}, Fault: fault}
			})
			var got error
			for e, err := range m.Stream(ctx, ask("x")) {
				if e.Text != "" {
					cancel()
				}
				got = err
			}
			if got != context.Canceled {
				t.Errorf("got %v, want %v", got, context.Canceled)
			}
		})
	}
}

func TestIdle(t *testing.T) {
	for name, fault := range map[string]openaitest.Fault{
		"before the answer": {Hang: true}, "within": {HangAfter: 1},
	} {
		t.Run(name, func(t *testing.T) {
			srv, _ := start(t, openaitest.Say("x"))
			srv.Inject(1, fault)
			m := newModel(t, srv, "fake", Options{IdleTimeout: 20 * time.Millisecond})
			_, _, err := collect(t.Context(), m, ask("x"))
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.TimedOut {
				t.Errorf("got %v, want %s", err, llm.TimedOut)
			}
		})
	}
}

// A complete answer is returned even if the rest of the stream never comes.
func TestHangAfterFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := content("text") + "\n\n" + stop + "\n\n"
		m := New("test", "fake", &Options{HTTP: &http.Client{Transport: silentAfter(body)}})
		before := time.Now()
		text, _, err := collect(t.Context(), m, ask("x"))
		if err != nil || text != "text" {
			t.Errorf("got %q, %v", text, err)
		}
		if took := time.Since(before); took != afterIdle {
			t.Errorf("took %v, want %v", took, afterIdle)
		}
	})
}

// The time that the consumer takes does not count as silence of the provider.
func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := content("a") + "\n\n" + content("b") + "\n\n" + stop + "\n\n" + done + "\n\n"
		m := New("test", "fake", &Options{HTTP: &http.Client{Transport: silentAfter(body)}})
		n := 0
		for _, err := range m.Stream(t.Context(), ask("x")) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			time.Sleep(time.Hour)
		}
		if n != 3 {
			t.Errorf("%d events, want 3", n)
		}
	})
}

// silentAfter is a transport whose answers never end after their text.
type silentAfter string

func (s silentAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{}, Request: r,
		Body: &silentBody{rest: strings.NewReader(string(s)), ended: r.Context().Done(),
			err: r.Context().Err},
	}, nil
}

type silentBody struct {
	rest  *strings.Reader
	ended <-chan struct{}
	err   func() error
}

func (b *silentBody) Read(p []byte) (int, error) {
	if err := b.err(); err != nil {
		return 0, err
	}
	if b.rest.Len() > 0 {
		return b.rest.Read(p[:1]) // one byte at a time
	}
	<-b.ended
	return 0, b.err()
}

func (b *silentBody) Close() error { return nil }

// A connection is reused if its answer was read to the end. The client waits a short time for the
// end.
func TestConnectionIsReused(t *testing.T) {
	for rest, want := range map[time.Duration]bool{
		0: true, afterDone - time.Millisecond: true, afterDone + time.Millisecond: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			slow := &lastWait{rest: rest}
			m := New("test", "fake", &Options{HTTP: &http.Client{Transport: slow}})
			if _, _, err := collect(t.Context(), m, ask("x")); err != nil {
				t.Fatal(err)
			}
			if slow.whole != want || !slow.closed {
				t.Errorf("with an end after %v: read to it %t, want %t; closed %t",
					rest, slow.whole, want, slow.closed)
			}
		})
	}
}

// A lastWait is a transport and the body of its answer. The body ends some time after its last
// frame.
type lastWait struct {
	rest          time.Duration
	left          *strings.Reader
	ctx           func() <-chan struct{}
	whole, closed bool
}

func (l *lastWait) RoundTrip(r *http.Request) (*http.Response, error) {
	l.left = strings.NewReader(content("a") + "\n\n" + stop + "\n\n" + done + "\n\n")
	l.ctx = r.Context().Done
	return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, Body: l}, nil
}

func (l *lastWait) Read(p []byte) (int, error) {
	if l.left.Len() > 0 {
		return l.left.Read(p)
	}
	select {
	case <-time.After(l.rest):
		l.whole = true
		return 0, io.EOF
	case <-l.ctx():
		return 0, context.Canceled
	}
}

func (l *lastWait) Close() error {
	l.closed = true
	return nil
}

func BenchmarkStream(b *testing.B) {
	var body strings.Builder
	for range 20 {
		body.WriteString(content("word and ") + "\n\n")
	}
	body.WriteString(stop + "\n\n" + done + "\n\n")
	m := New("test", "fake", &Options{HTTP: &http.Client{Transport: canned(body.String())}})
	req := ask("hello")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := collect(b.Context(), m, req); err != nil {
			b.Fatal(err)
		}
	}
}

// canned is a transport that always answers with the same body.
type canned string

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{}, Request: r,
		Body: struct {
			*strings.Reader
			nopCloser
		}{strings.NewReader(string(c)), nopCloser{}},
	}, nil
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

// BenchmarkLoopback measures a call over a real connection, including the work of the fake
// server.
func BenchmarkLoopback(b *testing.B) {
	srv := openaitest.Start(openaitest.Say("hello there"))
	defer srv.Close()
	srv.Keep(0)
	hc := wire.NewClient()
	defer hc.CloseIdleConnections()
	m := New("test", "fake", &Options{BaseURL: srv.URL, HTTP: hc})
	req := ask("hello")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := collect(b.Context(), m, req); err != nil {
			b.Fatal(err)
		}
	}
}
