// Package openaitest provides a fake of an OpenAI-compatible server.
//
// A [Server] checks each request as strictly as the strictest real API does,
// records it, and answers as a function says: with text, tool calls, pauses, or one of the
// faults that real providers show. It streams only. It also writes down recordings, as it is
// told to, speaks texts and makes pictures. It is used by tests and by load generators; the
// package owns no tables.
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

// maxBody is the most that a request may hold, in bytes.
const maxBody = 64 << 20

// A Reply is what the server answers.
type Reply struct {
	Text      []string // pieces of the visible text
	Reasoning []string // pieces of the reasoning, before the text
	ToolCalls []ToolCall
	Finish    string // default "tool_calls" if there are any, else "stop"
	Usage     *Usage // default counts words

	First   time.Duration // wait before the first byte
	Between time.Duration // wait before each further frame

	// Hold is called before each piece of the text but the first, with the number of those that
	// are sent, and may wait; default none.
	Hold func(sent int)

	// Frames are the frames to send in place of all of the above but the waits: whole
	// lines without newline, such as "data: {…}" or ": comment".
	Frames []string

	Fault Fault // default none
}

// Usage is the number of tokens, as the API has it.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// An Answer decides what to reply. It is called concurrently.
type Answer func(Request) Reply

// Echo answers with the text of the last message after "echo: ", word by word.
func Echo(r Request) Reply {
	return Reply{Text: strings.SplitAfter("echo: "+r.Messages[len(r.Messages)-1].Content, " ")}
}

// Say returns an Answer that always gives this text.
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
	tools  toolbox

	mu       sync.Mutex
	audio    audio
	speech   speech
	painting painting
	blind    *Fault // of requests with images
	keep     int
	count    int
	requests []Request
	faults   []Fault
	models   []string
}

// New returns a server that is not listening. If answer is nil, it is [Echo].
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

// Close ends all replies and, after [Start], stops listening.
// It must be called once only.
func (s *Server) Close() {
	close(s.closed)
	if s.http != nil {
		s.http.Close()
	}
}

// Keep sets how many requests are kept at most, the first ones; 0 for none.
func (s *Server) Keep(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = n
}

// Inject lets the next n chat completions suffer the fault.
func (s *Server) Inject(n int, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults = append(s.faults, f)
	}
}

// RefuseImages lets all chat completions with images suffer the fault, such as [NoImages].
func (s *Server) RefuseImages(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind = &f
}

// blindness returns what requests with images suffer.
func (s *Server) blindness() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blind == nil {
		return Fault{}
	}
	return *s.blind
}

// SetModels sets what /models lists.
func (s *Server) SetModels(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = ids
}

// Requests returns the kept requests, refused ones included, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Count returns how many chat completions were asked for.
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
		_, _ = w.Write(Painted()) // an error means that the client has gone
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
	req, invalid := s.tools.parse(body)
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
	reply := s.answer(req)
	if injected {
		reply.Fault = fault
	} else if reply.Fault.before(s, w, r) {
		return
	}
	st := &streamer{server: s, w: w, reply: &reply}
	st.run(r.Context(), req)
}

// record keeps req and returns the fault that it suffers, if any.
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
	// An error means that the client has gone, which is its own affair.
	_ = json.NewEncoder(w).Encode(v)
}

// words returns a rough count of tokens.
func words(texts ...string) int {
	n := 0
	for _, t := range texts {
		n += len(strings.Fields(t))
	}
	return n
}

// encode returns v as JSON; v is of a type that always has one.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("openaitest: %v", err))
	}
	return string(b)
}
