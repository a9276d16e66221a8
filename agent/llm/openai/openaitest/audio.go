package openaitest

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
)

// maxAudio is the API's limit for a recording, in bytes.
const maxAudio = 25 << 20

// An Audio is a recording in a transcription request.
type Audio struct {
	Model    string
	Name     string // of the file
	Data     []byte
	Language string
	Prompt   string
	Header   http.Header
}

// audio is the part of a [Server] for transcriptions. The server's lock guards it.
type audio struct {
	texts  map[string]string // by the recording's content
	heard  []Audio
	faults []Fault
}

// Hear sets the transcription of a recording with the given content. For other recordings the
// server returns their name and size.
func (s *Server) Hear(content, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.audio.texts == nil {
		s.audio.texts = make(map[string]string)
	}
	s.audio.texts[content] = text
}

// InjectAudio applies the fault to the next n transcriptions. Only the fields of the fault that
// act before a stream have an effect.
func (s *Server) InjectAudio(n int, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.audio.faults = append(s.audio.faults, f)
	}
}

// Audios returns the received recordings in order of arrival. Like requests, only the first ones
// are kept.
func (s *Server) Audios() []Audio {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.audio.heard)
}

func (s *Server) transcribe(w http.ResponseWriter, r *http.Request) {
	a, invalid := parseAudio(http.MaxBytesReader(w, r.Body, maxAudio), r)
	text, fault := s.hear(a)
	switch {
	case fault.before(s, w, r):
	case invalid != nil:
		refuse(w, http.StatusBadRequest, "invalid_request_error", invalid.Error())
	default:
		writeJSON(w, http.StatusOK, map[string]any{"text": text})
	}
}

// hear stores a and returns its transcription and fault.
func (s *Server) hear(a Audio) (string, Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.audio.heard) < s.keep {
		s.audio.heard = append(s.audio.heard, a)
	}
	text, ok := s.audio.texts[string(a.Data)]
	if !ok {
		text = fmt.Sprintf("%s of %d bytes", a.Name, len(a.Data))
	}
	if len(s.audio.faults) == 0 {
		return text, Fault{}
	}
	f := s.audio.faults[0]
	s.audio.faults = s.audio.faults[1:]
	return text, f
}

// parseAudio parses and checks a form.
func parseAudio(body io.Reader, r *http.Request) (Audio, error) {
	a := Audio{Header: r.Header}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method != http.MethodPost || err != nil || kind != "multipart/form-data" {
		return a, errors.New("a form with a file must be posted")
	}
	seen := make(map[string]bool)
	form := multipart.NewReader(body, params["boundary"])
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return a, a.check(seen)
		}
		if err != nil {
			return a, fmt.Errorf("form: %w", err)
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return a, fmt.Errorf("form: %w", err)
		}
		name := part.FormName()
		if seen[name] {
			return a, fmt.Errorf("form: %q comes twice", name)
		}
		seen[name] = true
		switch name {
		case "file":
			a.Name, a.Data = part.FileName(), value
		case "model":
			a.Model = string(value)
		case "language":
			a.Language = string(value)
		case "prompt":
			a.Prompt = string(value)
		case "response_format":
			if string(value) != "json" {
				return a, errors.New("this fake answers in JSON only")
			}
		case "temperature":
		default:
			return a, fmt.Errorf("unrecognized request argument supplied: %q", name)
		}
	}
}

// endings are the file extensions that both OpenAI and Groq accept.
var endings = []string{
	".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".ogg", ".wav", ".webm",
}

func (a Audio) check(seen map[string]bool) error {
	switch {
	case a.Model == "":
		return errors.New("you must provide a model parameter")
	case !seen["file"]:
		return errors.New("field required: file")
	case !slices.Contains(endings, strings.ToLower(path.Ext(a.Name))):
		return fmt.Errorf("unrecognized file format. Supported formats: %v", endings)
	case len(a.Data) == 0:
		return errors.New("audio file is too short. Minimum audio length is 0.1 seconds")
	}
	return nil
}
