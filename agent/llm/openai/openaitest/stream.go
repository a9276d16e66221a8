package openaitest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// A Fault is a way in which a provider fails. Set only one field, except where the comments say
// otherwise.
type Fault struct {
	Status      int    // HTTP status of the answer, with
	RetryAfter  string // this header, and
	Body        string // this body; default is an error object
	ContentType string // type of Body; default is JSON

	Hang       bool // never answer
	HangAfter  int  // send nothing more after this number of frames
	DropAfter  int  // cut the connection after this number of frames
	EndAfter   int  // end the stream without [DONE] after this number of frames
	ErrorAfter int  // send a comment and an error frame after this number of frames

	KeepAlives int  // number of comment lines to send first; works with other fields
	NoDone     bool // leave out the final [DONE]; works with other fields
}

// HTML502 is the error page of a proxy that can't reach the provider.
func HTML502() Fault {
	return Fault{
		Status: http.StatusBadGateway, ContentType: "text/html",
		Body: "<html><head><title>502 Bad Gateway</title></head></html>",
	}
}

// NoImages is OpenRouter's answer if the model does not accept images.
func NoImages() Fault {
	return Fault{
		Status: http.StatusNotFound,
		Body:   `{"error":{"message":"No endpoints found that support image input","code":404}}`,
	}
}

// before applies a fault that occurs before the stream. It returns false if there is none.
func (f Fault) before(s *Server, w http.ResponseWriter, r *http.Request) bool {
	switch {
	case f.Hang:
		s.hang(r.Context())
	case f.Status == 0:
		return false
	case f.Body == "":
		f.header(w)
		refuse(w, f.Status, strconv.Itoa(f.Status), http.StatusText(f.Status))
	default:
		f.header(w)
		w.Header().Set("Content-Type", "application/json")
		if f.ContentType != "" {
			w.Header().Set("Content-Type", f.ContentType)
		}
		w.WriteHeader(f.Status)
		// An error means that the client has disconnected.
		_, _ = io.WriteString(w, f.Body)
	}
	return true
}

func (f Fault) header(w http.ResponseWriter) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
}

// hang returns when the client has disconnected or the server is closed.
func (s *Server) hang(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.closed:
	}
}

// A streamer writes one reply.
type streamer struct {
	server *Server
	w      http.ResponseWriter
	reply  *Reply
}

func (s *streamer) run(ctx context.Context, req Request) {
	f := s.reply.Fault
	if !s.wait(ctx, s.reply.First) {
		return
	}
	s.w.Header().Set("Content-Type", "text/event-stream")
	for range f.KeepAlives {
		s.send(": OPENROUTER PROCESSING")
	}
	frames := s.reply.Frames
	if frames == nil {
		frames = s.reply.frames(req)
	}
	for i, frame := range frames {
		if s.faultAt(ctx, i) || i > 0 && !s.wait(ctx, s.reply.Between) {
			return
		}
		if n := i - len(s.reply.Reasoning); s.reply.Hold != nil && n > 0 && n < len(s.reply.Text) {
			s.reply.Hold(n)
		}
		s.send(frame)
	}
	if !s.faultAt(ctx, len(frames)) && s.reply.Frames == nil && !f.NoDone {
		s.send("data: [DONE]")
	}
}

// faultAt applies a fault that occurs after n frames, and reports whether it has ended the reply.
func (s *streamer) faultAt(ctx context.Context, n int) bool {
	if n == 0 {
		return false
	}
	switch f := s.reply.Fault; n {
	case f.HangAfter:
		s.server.hang(ctx)
	case f.DropAfter:
		panic(http.ErrAbortHandler) // makes net/http cut the connection
	case f.ErrorAfter:
		s.send(": OPENROUTER PROCESSING")
		s.send(`data: {"error":{"message":"Provider overloaded","code":529}}`)
	case f.EndAfter:
	default:
		return false
	}
	return true
}

// send writes one frame. An error means that the client has disconnected; wait reports that.
func (s *streamer) send(line string) {
	_, _ = io.WriteString(s.w, line+"\n\n")
	_ = http.NewResponseController(s.w).Flush()
}

// wait waits for d. It returns false if the reply must end.
func (s *streamer) wait(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.server.closed:
	}
	return false
}

type (
	wireFrame struct {
		ID      string       `json:"id"`
		Object  string       `json:"object"`
		Model   string       `json:"model"`
		Choices []wireChoice `json:"choices"`
		Usage   *Usage       `json:"usage"`
	}
	wireChoice struct {
		Index  int       `json:"index"`
		Delta  wireDelta `json:"delta"`
		Finish *string   `json:"finish_reason"`
	}
	wireDelta struct {
		Role      string     `json:"role,omitempty"`
		Content   *string    `json:"content,omitempty"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		ToolCalls []wireCall `json:"tool_calls,omitempty"`
	}
	wireCall struct {
		Index    int          `json:"index"`
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		Function wireFunction `json:"function"`
	}
	wireFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
)

// frames returns the frames of the reply, up to the usage, in the form of the API.
func (r *Reply) frames(req Request) []string {
	var frames []string
	add := func(choices []wireChoice, u *Usage) {
		frames = append(frames, "data: "+encode(wireFrame{
			ID: "chatcmpl-" + strconv.Itoa(req.N), Object: "chat.completion.chunk",
			Model: req.Model, Choices: choices, Usage: u,
		}))
	}
	delta := func(d wireDelta) { add([]wireChoice{{Delta: d}}, nil) }
	for _, t := range r.Reasoning {
		delta(wireDelta{Role: "assistant", Reasoning: t})
	}
	for _, t := range r.Text {
		delta(wireDelta{Role: "assistant", Content: &t})
	}
	for i, c := range r.ToolCalls {
		id := c.ID
		if id == "" {
			id = "call_" + strconv.Itoa(i+1)
		}
		// Like the API, send the name first and then the arguments in pieces.
		half := len(c.Arguments) / 2
		delta(wireDelta{ToolCalls: []wireCall{
			{Index: i, ID: id, Type: "function", Function: wireFunction{Name: c.Name}}}})
		for _, piece := range []string{c.Arguments[:half], c.Arguments[half:]} {
			delta(wireDelta{ToolCalls: []wireCall{
				{Index: i, Function: wireFunction{Arguments: piece}}}})
		}
	}
	finish := r.Finish
	if finish == "" {
		finish = "stop"
		if len(r.ToolCalls) > 0 {
			finish = "tool_calls"
		}
	}
	add([]wireChoice{{Finish: &finish}}, nil)
	add([]wireChoice{}, r.usage(req))
	return frames
}

func (r *Reply) usage(req Request) *Usage {
	if r.Usage != nil {
		return r.Usage
	}
	u := &Usage{Completion: max(1, words(r.Text...)+words(r.Reasoning...))}
	for _, m := range req.Messages {
		u.Prompt += words(m.Content)
	}
	u.Total = u.Prompt + u.Completion
	return u
}
