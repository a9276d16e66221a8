package openai

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
)

func TestSpeak(t *testing.T) {
	t.Parallel()
	srv := openaitest.Start(nil)
	defer srv.Close()
	s := NewSpeaker("tts-1", "alloy", "opus", &Options{BaseURL: srv.URL, Key: "sk-secret"})
	sound, err := s.Speak(t.Context(), "Hello \"there\".")
	if err != nil || !slices.Equal(sound, openaitest.Ogg(2)) {
		t.Fatalf("%d bytes, %v", len(sound), err)
	}
	got := srv.Speeches()[0]
	if got.Model != "tts-1" || got.Voice != "alloy" || got.Input != "Hello \"there\"." ||
		got.Header.Get("Authorization") != "Bearer sk-secret" {
		t.Errorf("sent %+v", got)
	}
	for name, tt := range map[string]struct {
		fault openaitest.Fault
		want  llm.Kind
	}{
		"key": {openaitest.Fault{Status: 401,
			Body: `{"error":{"message":"Incorrect API key provided: sk-secret"}}`}, llm.Unauthorized},
		"limit": {openaitest.Fault{Status: 429}, llm.RateLimited},
		"page":  {openaitest.HTML502(), llm.Unavailable},
	} {
		srv.InjectSpeech(1, tt.fault)
		_, err := s.Speak(t.Context(), "Hello.")
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != tt.want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if _, err := s.Speak(t.Context(), strings.Repeat("a", 5000)); err == nil {
		t.Error("a text that is too long was spoken")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Speak(canceled, "Hello."); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// The client stops reading an endless answer.
func TestSpeakBounds(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 1<<20)
		for {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	s := NewSpeaker("m", "v", "opus", &Options{BaseURL: srv.URL})
	if _, err := s.Speak(t.Context(), "Hello."); err == nil {
		t.Error("an endless sound was taken")
	}
}
