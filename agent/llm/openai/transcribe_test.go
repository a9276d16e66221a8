package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
)

func TestTranscribe(t *testing.T) {
	srv := openaitest.Start(nil)
	defer srv.Close()
	srv.Hear("OggS sound", " Hello there.\n")
	tr := NewTranscriber("whisper-1", &Options{BaseURL: srv.URL, Key: "sk-1",
		Fields: map[string]json.RawMessage{"language": []byte(`"de"`), "temperature": []byte(`1`)}})
	for name, want := range map[string]string{
		"voice.oga": "voice.ogg", "dir/a.b.OPUS": "a.b.ogg", `c:\x\y.mp3`: "y.mp3", "a.aac": "a.m4a",
		"noname": "noname.ogg", `q"uo.ogg`: `q"uo.ogg`,
	} {
		got, err := tr.Transcribe(t.Context(), name, strings.NewReader("OggS sound"))
		if got != "Hello there." || err != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		all := srv.Audios()
		a := all[len(all)-1]
		if a.Name != want || a.Model != "whisper-1" || a.Language != "de" ||
			string(a.Data) != "OggS sound" || a.Header.Get("Authorization") != "Bearer sk-1" {
			t.Errorf("%s: sent %+v, want the name %s", name, a, want)
		}
	}
	srv.Hear("silence", "")
	got, err := tr.Transcribe(t.Context(), "a.wav", strings.NewReader("silence"))
	if got != "" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestTranscribeFailures(t *testing.T) {
	srv := openaitest.Start(nil)
	defer srv.Close()
	tr := NewTranscriber("whisper-1", &Options{BaseURL: srv.URL, Key: "sk-secret"})
	for name, tt := range map[string]struct {
		fault openaitest.Fault
		want  llm.Kind
	}{
		"key": {openaitest.Fault{Status: 401,
			Body: `{"error":{"message":"Incorrect API key provided: sk-secret"}}`}, llm.Unauthorized},
		"limit":      {openaitest.Fault{Status: 429, RetryAfter: "7"}, llm.RateLimited},
		"overloaded": {openaitest.Fault{Status: 503}, llm.Overloaded},
		"page":       {openaitest.HTML502(), llm.Unavailable},
		"page as answer": {openaitest.Fault{Status: 200, ContentType: "text/html", Body: "<html>"},
			llm.Unavailable},
		"no JSON": {openaitest.Fault{Status: 200, Body: "{"}, llm.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			srv.InjectAudio(1, tt.fault)
			got, err := tr.Transcribe(t.Context(), "a.ogg", strings.NewReader("x"))
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tt.want || got != "" {
				t.Fatalf("got %q, %v, want %v", got, err, tt.want)
			}
			if name == "limit" && e.After != 7*time.Second {
				t.Errorf("after %v", e.After)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), srv.URL) {
				t.Errorf("%v tells too much", err)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		mute := openaitest.Start(nil) // its own server: the client may give up before it asks
		defer mute.Close()
		mute.InjectAudio(1, openaitest.Fault{Hang: true})
		tr := NewTranscriber("m", &Options{BaseURL: mute.URL, IdleTimeout: 20 * time.Millisecond})
		_, err := tr.Transcribe(t.Context(), "a.ogg", strings.NewReader("x"))
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.TimedOut {
			t.Errorf("got %v, want %s", err, llm.TimedOut)
		}
	})
	t.Run("bad file", func(t *testing.T) {
		var e *llm.Error
		_, err := tr.Transcribe(t.Context(), "a.txt", strings.NewReader("x"))
		if !errors.As(err, &e) || e.Kind != llm.BadRequest {
			t.Errorf("got %v", err)
		}
	})
	t.Run("reader", func(t *testing.T) {
		broken := errors.New("broken")
		_, err := tr.Transcribe(t.Context(), "a.ogg", iotest.ErrReader(broken))
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := tr.Transcribe(ctx, "a.ogg", strings.NewReader("x"))
		if err != context.Canceled {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no server", func(t *testing.T) {
		tr := NewTranscriber("m", &Options{BaseURL: "http://127.0.0.1:1/v1"})
		_, err := tr.Transcribe(t.Context(), "a.ogg", strings.NewReader("x"))
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.Unavailable || strings.Contains(err.Error(), "/v1") {
			t.Errorf("got %v", err)
		}
	})
}

// A very long answer is cut and causes an error.
func TestTranscribeBounds(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		block := bytes.Repeat([]byte("a"), 1<<20)
		for range 64 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	tr := NewTranscriber("m", &Options{BaseURL: srv.URL})
	if _, err := tr.Transcribe(t.Context(), "a.ogg", strings.NewReader("x")); err == nil {
		t.Error("an answer that is no JSON was taken")
	}
}
