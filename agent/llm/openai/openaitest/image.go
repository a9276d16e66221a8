package openaitest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of the API for pictures.
const (
	maxImagePrompt = 32_000 // characters
	maxEdited      = 16     // pictures in one request
)

// A Drawing is a request for a picture.
type Drawing struct {
	Model, Prompt, Size string
	Edits               [][]byte // the pictures to edit
	Header              http.Header
}

// painting is the part of a [Server] for pictures. The server's lock guards it.
type painting struct {
	asked  []Drawing
	faults []Fault
	hold   func(Drawing)
	url    string
}

// InjectDrawing applies the fault to the next n pictures. Only the fields of the fault that act
// before a stream have an effect.
func (s *Server) InjectDrawing(n int, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.painting.faults = append(s.painting.faults, f)
	}
}

// HoldDrawings makes the server call hold before each picture. hold may block.
func (s *Server) HoldDrawings(hold func(Drawing)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.painting.hold = hold
}

// AnswerDrawings makes the server answer with a URL, for example that of its own painted.png. With
// "" it answers with the content again.
func (s *Server) AnswerDrawings(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.painting.url = url
}

// Drawings returns the received requests for pictures in order of arrival. Like other requests,
// only the first ones are kept.
func (s *Server) Drawings() []Drawing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.painting.asked)
}

func (s *Server) paint(
	w http.ResponseWriter, r *http.Request, parse func(io.Reader, *http.Request) (Drawing, error),
) {
	asked, invalid := parse(http.MaxBytesReader(w, r.Body, maxBody), r)
	asked.Header = r.Header
	s.mu.Lock()
	if len(s.painting.asked) < s.keep {
		s.painting.asked = append(s.painting.asked, asked)
	}
	fault, hold, url := Fault{}, s.painting.hold, s.painting.url
	if len(s.painting.faults) > 0 {
		fault, s.painting.faults = s.painting.faults[0], s.painting.faults[1:]
	}
	s.mu.Unlock()
	if hold != nil {
		hold(asked)
	}
	picture := map[string]any{"b64_json": base64.StdEncoding.EncodeToString(Painted())}
	if url != "" {
		picture = map[string]any{"url": url, "revised_prompt": asked.Prompt}
	}
	switch {
	case fault.before(s, w, r):
	case invalid != nil:
		refuse(w, http.StatusBadRequest, "invalid_request_error", invalid.Error())
	default:
		writeJSON(w, http.StatusOK, map[string]any{"created": 1, "data": []any{picture}})
	}
}

// Painted returns the picture that a server sends.
func Painted() []byte {
	m := image.NewGray(image.Rect(0, 0, 64, 64))
	for i := range 64 {
		m.Set(i, i, color.White)
	}
	var b bytes.Buffer
	_ = png.Encode(&b, m) // writing to a Buffer can't fail
	return b.Bytes()
}

// parseGeneration parses and checks a request for a new picture.
func parseGeneration(body io.Reader, r *http.Request) (a Drawing, err error) {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		return a, errors.New("JSON must be posted")
	}
	var fields map[string]any
	if err := json.NewDecoder(body).Decode(&fields); err != nil {
		return a, err
	}
	for name, value := range fields {
		text, isText := value.(string)
		if err := a.set(name, text, isText); err != nil {
			return a, err
		}
	}
	return a, a.check()
}

// parseEdit parses and checks a request for an edited picture.
func parseEdit(body io.Reader, r *http.Request) (a Drawing, err error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method != http.MethodPost || err != nil || kind != "multipart/form-data" {
		return a, errors.New("a form with files must be posted")
	}
	form, fields := multipart.NewReader(body, params["boundary"]), make(map[string]int)
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a, fmt.Errorf("form: %w", err)
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return a, fmt.Errorf("form: %w", err)
		}
		name := part.FormName()
		fields[name]++
		switch {
		case fields[name] > 1 && name != "image[]":
			return a, fmt.Errorf("form: %q comes twice", name)
		case name == "image" || name == "image[]":
			t := part.Header.Get("Content-Type")
			if part.FileName() == "" || t != http.DetectContentType(value) ||
				!slices.Contains([]string{"image/png", "image/jpeg", "image/webp"}, t) {
				return a, fmt.Errorf("invalid file: unsupported mimetype (%q)", t)
			}
			a.Edits = append(a.Edits, value)
		default:
			if err := a.set(name, string(value), true); err != nil {
				return a, err
			}
		}
	}
	if n := len(a.Edits); n == 0 || n > maxEdited || fields["image"] > 0 && fields["image[]"] > 0 {
		return a, fmt.Errorf("%d images were provided: want 1 to %d", n, maxEdited)
	}
	return a, a.check()
}

// set sets a field of a request. It accepts the fields of the API's newer models, which do not
// support response_format.
func (a *Drawing) set(name, text string, isText bool) error {
	where := map[string]*string{"model": &a.Model, "prompt": &a.Prompt, "size": &a.Size}[name]
	switch {
	case where != nil && isText:
		*where = text
	case where != nil:
		return fmt.Errorf("invalid type for %q", name)
	case !slices.Contains([]string{"background", "moderation", "n", "output_compression",
		"output_format", "quality", "user", "input_fidelity"}, name):
		return fmt.Errorf("unknown parameter: %q", name)
	}
	return nil
}

func (a *Drawing) check() error {
	sizes := []string{"", "auto", "1024x1024", "1536x1024", "1024x1536"}
	switch n := utf8.RuneCountInString(a.Prompt); {
	case a.Model == "":
		return errors.New("you must provide a model parameter")
	case strings.TrimSpace(a.Prompt) == "" || n > maxImagePrompt:
		return fmt.Errorf("prompt: want 1 to %d characters", maxImagePrompt)
	case !slices.Contains(sizes, a.Size):
		return fmt.Errorf("invalid value: %q. Supported values are: %q", a.Size, sizes[1:])
	}
	return nil
}
