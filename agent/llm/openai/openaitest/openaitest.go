// Package openaitest provides a fake of an OpenAI-compatible server.
//
// A [Server] checks each request as strictly as the strictest real API, records it, and answers as
// a function decides: with text, tool calls, pauses, or a fault of real providers. It always
// streams. It also transcribes recordings, speaks texts and makes pictures. Tests and load
// generators use it. The package has no database tables.
package openaitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// DefaultKeep is the number of requests that a new Server keeps.
const DefaultKeep = 1000

// maxBody is the greatest size of a request, in bytes.
const maxBody = 64 << 20

// A Reply is the server's answer.
type Reply struct {
	Text      []string // pieces of the visible text
	Reasoning []string // pieces of the reasoning, before the text
	ToolCalls []ToolCall
	Finish    string // default "tool_calls" if there are any, otherwise "stop"
	Usage     *Usage // default counts words

	First   time.Duration // wait before the first byte
	Between time.Duration // wait before each further frame

	// Hold is called before each piece of the text except the first, with the number of pieces sent
	// so far. It may block. By default there is none.
	Hold func(sent int)

	// Frames replace all of the above except the waits. Each frame is a whole line without newline,
	// such as "data: {…}" or ": comment".
	Frames []string

	Fault Fault // default none
}

// Usage has token counts in the form of the API.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// An Answer decides how to reply. It must be safe for concurrent use.
type Answer func(Request) Reply

// Echo answers "echo: " and the text of the last message, word by word.
func Echo(r Request) Reply {
	return Reply{Text: strings.SplitAfter("echo: "+r.Messages[len(r.Messages)-1].Content, " ")}
}

// Say returns an Answer that always replies with text.
func Say(text string) Answer {
	return func(Request) Reply { return Reply{Text: []string{text}} }
}

// A Server is a fake server. It is an [http.Handler] for paths with and
// without /v1, and safe for concurrent use.
type Server struct {
	URL string // base URL for clients, such as http://127.0.0.1:1234/v1; set by Start

	answer Answer
	http   *httptest.Server
	closed chan struct{}

	mu       sync.Mutex
	audio    audio
	speech   speech
	painting painting
	blind    *Fault // for requests with images
	keep     int
	count    int
	requests []Request
	faults   []Fault
	models   []string
}

// New returns a server that does not listen. If answer is nil, it uses [Echo].
func New(answer Answer) *Server {
	if answer == nil {
		answer = Echo
	}
	return &Server{
		answer: answer, closed: make(chan struct{}),
		keep: DefaultKeep, models: []string{"fake-model"},
	}
}

// Start returns a server that listens on a loopback port until Close.
func Start(answer Answer) *Server {
	s := New(answer)
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL + "/v1"
	return s
}

// Close ends all replies. After [Start] it also stops listening. Call it only once.
func (s *Server) Close() {
	close(s.closed)
	if s.http != nil {
		s.http.Close()
	}
}

// Keep sets how many requests are kept: the first n, or none if n is 0.
func (s *Server) Keep(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = n
}

// Inject applies the fault to the next n chat completions.
func (s *Server) Inject(n int, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults = append(s.faults, f)
	}
}

// RefuseImages applies a fault, such as [NoImages], to all chat completions with images.
func (s *Server) RefuseImages(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind = &f
}

// blindness returns the fault for requests with images.
func (s *Server) blindness() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blind == nil {
		return Fault{}
	}
	return *s.blind
}

// SetModels sets the answer to requests for /models.
func (s *Server) SetModels(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = ids
}

// Requests returns the kept requests in order of arrival, including refused ones.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Count returns the number of requests for chat completions.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, "/v1") {
	case "/models":
		s.listModels(w)
	case "/chat/completions":
		s.complete(w, r)
	case "/audio/transcriptions":
		s.transcribe(w, r)
	case "/audio/speech":
		s.speak(w, r)
	case "/images/generations":
		s.paint(w, r, parseGeneration)
	case "/images/edits":
		s.paint(w, r, parseEdit)
	case "/painted.png":
		_, _ = w.Write(Painted()) // an error means that the client has disconnected
	default:
		refuse(w, http.StatusNotFound, "unknown_url", "Unknown request URL: "+r.URL.Path)
	}
}

func (s *Server) listModels(w http.ResponseWriter) {
	s.mu.Lock()
	ids := s.models
	s.mu.Unlock()
	list := []map[string]any{}
	for _, id := range ids {
		list = append(list, map[string]any{"id": id, "object": "model", "owned_by": "fake"})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, "body", "body: "+err.Error())
		return
	}
	req, invalid := tools.parse(body)
	req.Header, req.RemoteAddr = r.Header, r.RemoteAddr
	fault, injected := s.record(&req)
	if injected && fault.before(s, w, r) {
		return
	}
	if invalid != nil {
		refuse(w, http.StatusBadRequest, "invalid_request_error", invalid.Error())
		return
	}
	if req.images() > 0 && s.blindness().before(s, w, r) {
		return
	}
	reply, ok := s.reply(req)
	if !ok {
		return
	}
	if injected {
		reply.Fault = fault
	} else if reply.Fault.before(s, w, r) {
		return
	}
	st := &streamer{server: s, w: w, reply: &reply}
	st.run(r.Context(), req)
}

// reply returns the answer to req. It returns false if the server is closed first, because closing
// it waits for all handlers: a test that fails may never allow the answer.
func (s *Server) reply(req Request) (r Reply, ok bool) {
	replies := make(chan Reply, 1)
	go func() {
		defer close(replies)
		replies <- s.answer(req)
	}()
	select {
	case r, ok = <-replies:
	case <-s.closed:
	}
	return r, ok
}

// record stores req and returns its fault, if any.
func (s *Server) record(req *Request) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	req.N = s.count
	if len(s.requests) < s.keep {
		s.requests = append(s.requests, *req)
	}
	if len(s.faults) == 0 {
		return Fault{}, false
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f, true
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"message": message, "type": "invalid_request_error", "code": code, "param": nil,
	}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(v)
}

// words returns a rough number of tokens.
func words(texts ...string) int {
	n := 0
	for _, t := range texts {
		n += len(strings.Fields(t))
	}
	return n
}

// encode returns v as JSON. v has a type whose encoding can't fail.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("openaitest: %v", err))
	}
	return string(b)
}
