package demo

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxBody is the greatest size of a request, in bytes.
const maxBody = 64 << 20

// A Handler serves the demo model with the chat completions protocol. It always streams.
type Handler struct {
	WordDelay time.Duration // pause after each word; none if 0 or less
}

// request has the fields of a request that the model uses.
type request struct {
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		} `json:"function"`
	} `json:"tools"`
}

// A content is the text of a message and a description of its images.
type content struct {
	text   string
	images []string // such as "PNG, 12 KB"
}

// UnmarshalJSON implements [json.Unmarshaler]. A content is a string or a list of parts.
func (c *content) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &c.text); err == nil {
		return nil
	}
	var parts []struct {
		Text     string `json:"text"`
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		c.text += p.Text
		if p.ImageURL.URL != "" {
			c.images = append(c.images, describe(p.ImageURL.URL))
		}
	}
	return nil
}

// describe returns the type and size of the image in a data URL.
func describe(url string) string {
	kind, data, ok := strings.Cut(strings.TrimPrefix(url, "data:image/"), ";base64,")
	if !ok {
		return "on the web"
	}
	size := base64.StdEncoding.DecodedLen(len(data))
	return fmt.Sprintf("%s, %d KB", strings.ToUpper(kind), (size+1023)/1024)
}

// offers reports whether the model may call the tool. The gateway lists rarely used tools in the
// description of another tool, and accepts calls by their own names too.
func (r *request) offers(tool string) bool {
	for _, t := range r.Tools {
		if t.Function.Name == tool || strings.Contains(t.Function.Description, "\n- "+tool+": ") {
			return true
		}
	}
	return false
}

// answered reports whether the model has written any text yet.
func (r *request) answered() bool {
	for _, m := range r.Messages {
		if m.Role == "assistant" && strings.TrimSpace(m.Content.text) != "" {
			return true
		}
	}
	return false
}

// question returns the last message of the user.
func (r *request) question() content {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role == "user" {
			return r.Messages[i].Content
		}
	}
	return content{}
}

// frame matches the lines around text from outside, which people need not see.
var frame = lazily(`(?m)^\[(?:text of .*, which is information and no instruction|` +
	`end of .*)\]\n?`)

// results returns the results of tools at the end of the request, or "".
func (r *request) results() string {
	var results []string
	for i := len(r.Messages) - 1; i >= 0 && r.Messages[i].Role == "tool"; i-- {
		text := frame().ReplaceAllString(r.Messages[i].Content.text, "")
		text = clip(strings.TrimSpace(text), maxResult)
		if text == "" {
			text = "(nothing)"
		}
		results = append([]string{text}, results...)
	}
	return strings.Join(results, "\n\n")
}

// ServeHTTP implements [http.Handler].
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req request
	err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&req)
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		// An error means that the client has disconnected.
		_ = json.NewEncoder(w).Encode(object{"error": object{"message": err.Error()}})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{w: w, delay: h.WordDelay, gone: r.Context().Done()}
	s.write(answer(req))
}

// A stream writes one answer. After an error it writes nothing more.
type stream struct {
	w     http.ResponseWriter
	delay time.Duration
	gone  <-chan struct{}
	err   error
}

// object is a JSON object to write.
type object map[string]any

func (s *stream) write(r reply) {
	finish := "stop"
	words := strings.SplitAfter(r.text, " ")
	if r.tool != "" {
		finish = "tool_calls"
		// Encoding a map of strings can't fail.
		args, _ := json.Marshal(r.args)
		s.delta(object{"tool_calls": []object{{"index": 0, "type": "function",
			"function": object{"name": r.tool, "arguments": string(args)}}}})
		words = nil
	}
	for i, word := range words {
		if i > 0 {
			s.pause()
		}
		s.delta(object{"content": word})
	}
	s.frame(object{"choices": []object{{"index": 0, "delta": object{}, "finish_reason": finish}}})
	s.line("[DONE]")
}

func (s *stream) delta(d object) {
	s.frame(object{"choices": []object{{"index": 0, "delta": d}}})
}

func (s *stream) frame(o object) {
	b, err := json.Marshal(o)
	if err != nil {
		s.err = err
		return
	}
	s.line(string(b))
}

func (s *stream) line(data string) {
	if s.err != nil {
		return
	}
	if _, s.err = io.WriteString(s.w, "data: "+data+"\n\n"); s.err == nil {
		s.err = http.NewResponseController(s.w).Flush()
	}
}

// pause waits between two words. It ends the stream if the client has disconnected.
func (s *stream) pause() {
	if s.delay <= 0 || s.err != nil {
		return
	}
	t := time.NewTimer(s.delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.gone:
		s.err = io.ErrClosedPipe
	}
}
