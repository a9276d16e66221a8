package openaitest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"unicode/utf8"
)

// maxInput is the API's limit for a text to speak, in characters.
const maxInput = 4096

// A Speech is a request for speech.
type Speech struct {
	Model, Input, Voice, Format string
	Header                      http.Header
}

// speech is the part of a [Server] for speech. The server's lock guards it.
type speech struct {
	asked  []Speech
	faults []Fault
	hold   func(Speech)
}

// InjectSpeech applies the fault to the next n requests for speech. Only the fields of the fault
// that act before a stream have an effect.
func (s *Server) InjectSpeech(n int, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.speech.faults = append(s.speech.faults, f)
	}
}

// HoldSpeech makes the server call hold before each answer with speech. hold may block.
func (s *Server) HoldSpeech(hold func(Speech)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.speech.hold = hold
}

// Speeches returns the received requests for speech in order of arrival. Like other requests, only
// the first ones are kept.
func (s *Server) Speeches() []Speech {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.speech.asked)
}

func (s *Server) speak(w http.ResponseWriter, r *http.Request) {
	asked, invalid := parseSpeech(http.MaxBytesReader(w, r.Body, maxBody), r)
	s.mu.Lock()
	if len(s.speech.asked) < s.keep {
		s.speech.asked = append(s.speech.asked, asked)
	}
	fault, hold := Fault{}, s.speech.hold
	if len(s.speech.faults) > 0 {
		fault, s.speech.faults = s.speech.faults[0], s.speech.faults[1:]
	}
	s.mu.Unlock()
	if hold != nil {
		hold(asked)
	}
	switch {
	case fault.before(s, w, r):
	case invalid != nil:
		refuse(w, http.StatusBadRequest, "invalid_request_error", invalid.Error())
	case asked.Format == "opus":
		w.Header().Set("Content-Type", "audio/ogg")
		_, _ = w.Write(Ogg(2)) // an error means that the client has disconnected
	default:
		w.Header().Set("Content-Type", "audio/mpeg")
		_, _ = w.Write(append([]byte("ID3\x04\x00\x00\x00\x00\x00\x00"), make([]byte, 64)...))
	}
}

// parseSpeech parses and checks a request.
func parseSpeech(body io.Reader, r *http.Request) (Speech, error) {
	var in struct {
		Model          string  `json:"model"`
		Input          string  `json:"input"`
		Voice          string  `json:"voice"`
		Instructions   string  `json:"instructions"`
		ResponseFormat string  `json:"response_format"`
		Speed          float64 `json:"speed"`
		StreamFormat   string  `json:"stream_format"`
	}
	in.ResponseFormat, in.Speed = "mp3", 1
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	err := d.Decode(&in)
	s := Speech{in.Model, in.Input, in.Voice, in.ResponseFormat, r.Header}
	formats := []string{"mp3", "opus", "aac", "flac", "wav", "pcm"}
	switch n := utf8.RuneCountInString(in.Input); {
	case r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json":
		return s, errors.New("JSON must be posted")
	case err != nil:
		return s, err
	case in.Model == "", in.Voice == "":
		return s, errors.New("you must provide a model and a voice")
	case n == 0 || n > maxInput:
		return s, fmt.Errorf("input should have 1 to %d characters", maxInput)
	case !slices.Contains(formats, in.ResponseFormat):
		return s, fmt.Errorf("response_format should be one of %v", formats)
	case in.Speed < 0.25 || in.Speed > 4:
		return s, errors.New("speed should be from 0.25 to 4")
	case in.StreamFormat != "" && in.StreamFormat != "audio":
		return s, errors.New("this fake answers with sound only")
	}
	return s, nil
}

// Ogg returns an Ogg file with the given number of seconds of silence in Opus.
func Ogg(seconds int) []byte {
	var b bytes.Buffer
	page := func(kind byte, samples uint64, number uint32, packet []byte) {
		b.WriteString("OggS\x00")
		b.WriteByte(kind)
		for _, field := range []any{samples, uint32(1), number, uint32(0), byte(1),
			byte(len(packet))} {
			_ = binary.Write(&b, binary.LittleEndian, field) // writing to a Buffer can't fail
		}
		b.Write(packet)
	}
	page(2, 0, 0, []byte("OpusHead\x01\x01\x00\x00\x80\xbb\x00\x00\x00\x00\x00"))
	page(0, 0, 1, []byte("OpusTags\x04\x00\x00\x00fake\x00\x00\x00\x00"))
	page(4, uint64(seconds)*48_000, 2, []byte{0xf8, 0xff, 0xfe})
	return b.Bytes()
}
