// Package anthropictest provides a fake of Anthropic's Messages API on a loopback port. It refuses
// requests that the API's documentation forbids, and has a prompt cache like the API.
package anthropictest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A Reply is the model's answer.
type Reply struct {
	Thinking string // sent first
	Text     string
	Calls    []Call
	Then     *Reply // more thoughts, text and calls of the same answer
	Stop     string // default is end_turn, or tool_use if there are calls

	Status int    // if not 0, the call fails with this HTTP status
	Kind   string // of the error, such as overloaded_error; without Status it is in the stream
	Cut    bool   // end the stream before the answer
}

// A Call is a call of a tool.
type Call struct{ ID, Name, Input string }

// A Server is a fake of the API. It is safe for concurrent use.
type Server struct {
	URL string // without /v1/messages

	key    string
	answer func(Request) Reply

	mu       sync.Mutex
	requests []Request
	cached   map[string]bool // marked beginnings of prompts
	shapes   map[string]bool // see shape
	problems []string
}

// Start starts a server that requires key and calls answer. When the test ends, it fails if the
// server has received an invalid request.
func Start(t testing.TB, key string, answer func(Request) Reply) *Server {
	s := &Server{key: key, answer: answer, cached: make(map[string]bool),
		shapes: make(map[string]bool)}
	srv := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = srv.URL
	t.Cleanup(func() {
		srv.Close()
		for _, p := range s.Problems() {
			t.Error("a request that the API refuses: " + p)
		}
	})
	return s
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Problems returns the problems of requests so far and clears them.
func (s *Server) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.problems
	s.problems = nil
	return list
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	if r.Header.Get("X-Api-Key") != s.key {
		fail(w, 401, "authentication_error", "invalid x-api-key")
		return
	}
	if r.Header.Get("Anthropic-Version") != "2023-06-01" {
		fail(w, 400, "invalid_request_error", "anthropic-version: header is required")
		return
	}
	if r.Method == http.MethodGet && r.URL.Path == "/v1/models" {
		w.Header().Set("Content-Type", "application/json")
		// An error means that the client has disconnected.
		_, _ = io.WriteString(w, `{"data":[{"type":"model","id":"claude-sonnet-5-5"}],"has_more":false}`)
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
		fail(w, 404, "not_found_error", "Not found")
		return
	}
	req, problem := parse(body)
	req.Header = r.Header
	s.mu.Lock()
	written := s.cache(&req)
	s.requests = append(s.requests, req)
	if problem == "" {
		problem = s.changedThoughts(req.Messages)
	}
	if problem != "" {
		s.problems = append(s.problems, problem)
	}
	s.mu.Unlock()
	if problem != "" {
		fail(w, 400, "invalid_request_error", problem)
		return
	}
	reply := s.answer(req)
	if reply.Status != 0 {
		fail(w, reply.Status, reply.Kind, "it is a test")
		return
	}
	s.mu.Lock()
	s.shapes[reply.shape()] = true
	s.mu.Unlock()
	stream(w, req, reply, written)
}

// cache stores the marked beginnings of a prompt. It records in req how much was stored already,
// and returns how many characters were not. The caller holds mu.
func (s *Server) cache(req *Request) (written int) {
	for _, beginning := range req.marked {
		if s.cached[beginning] {
			req.CacheRead = max(req.CacheRead, len(beginning))
		}
	}
	for _, beginning := range req.marked {
		s.cached[beginning] = true
		written = max(written, len(beginning)-req.CacheRead)
	}
	return written
}

func fail(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure(kind, message)) // the client may have disconnected
}

func failure(kind, message string) any {
	return map[string]any{"type": "error",
		"error": map[string]string{"type": kind, "message": message}}
}

// stream writes the events of an answer in pieces of a few characters.
func stream(w http.ResponseWriter, req Request, r Reply, written int) {
	read := req.CacheRead
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := func(kind string, fields map[string]any) {
		fields["type"] = kind
		data, err := json.Marshal(fields)
		if err != nil {
			panic(err) // these values can always be encoded
		}
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data) // the client may have disconnected
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	event("message_start", map[string]any{"message": map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": req.Model, "content": []any{},
		"usage": map[string]any{"input_tokens": len(req.Body) - read - written,
			"cache_creation_input_tokens": written, "cache_read_input_tokens": read,
			"output_tokens": 1}}})
	event("ping", map[string]any{})
	index := 0
	block := func(start map[string]any, delta, field, text string, last ...map[string]any) {
		event("content_block_start", map[string]any{"index": index, "content_block": start})
		for len(text) > 0 {
			n := min(len(text), 7)
			for n < len(text) && text[n]&0xC0 == 0x80 { // don't split a character
				n++
			}
			event("content_block_delta", map[string]any{"index": index,
				"delta": map[string]any{"type": delta, field: text[:n]}})
			text = text[n:]
		}
		for _, d := range last {
			event("content_block_delta", map[string]any{"index": index, "delta": d})
		}
		event("content_block_stop", map[string]any{"index": index})
		index++
	}
	stop := "end_turn"
	for part := &r; part != nil; part = part.Then {
		if part.Thinking != "" {
			block(map[string]any{"type": "thinking", "thinking": "", "signature": ""},
				"thinking_delta", "thinking", part.Thinking,
				map[string]any{"type": "signature_delta", "signature": "signed:" + part.Thinking})
		}
		if part.Text != "" {
			block(map[string]any{"type": "text", "text": ""}, "text_delta", "text", part.Text)
		}
		if r.Kind != "" || r.Cut {
			break
		}
		for _, c := range part.Calls {
			stop = "tool_use"
			block(map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name,
				"input": map[string]any{}}, "input_json_delta", "partial_json", c.Input)
		}
	}
	if r.Kind != "" {
		event("error", map[string]any{
			"error": map[string]string{"type": r.Kind, "message": "it is a test"}})
		return
	}
	if r.Cut {
		return
	}
	if r.Stop != "" {
		stop = r.Stop
	}
	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop},
		"usage": map[string]any{"output_tokens": 1 + len(strings.Fields(r.Text))}})
	event("message_stop", map[string]any{})
}
