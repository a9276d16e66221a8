package openai

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
)

func TestGenerateImage(t *testing.T) {
	t.Parallel()
	srv := openaitest.Start(nil)
	defer srv.Close()
	p := NewImageClient("gpt-image-1", &Options{BaseURL: srv.URL, Key: "sk-secret"})
	picture := openaitest.Painted()
	got, err := p.Generate(t.Context(), `a "rose"`, "")
	if err != nil || !slices.Equal(got.Data, picture) {
		t.Fatalf("%d bytes, %v", len(got.Data), err)
	}
	for n := 1; n <= 3; n++ {
		pictures := make([]Picture, n)
		for i := range pictures {
			pictures[i] = Picture{Name: "x/a\"b.png", Type: "image/png",
				Content: bytes.NewReader(picture), Size: int64(len(picture))}
		}
		if _, err := p.Edit(t.Context(), "blue", "1024x1024", pictures); err != nil {
			t.Errorf("%d pictures: %v", n, err)
		}
	}
	srv.AnswerDrawings("https://example.org/a.png")
	got, err = p.Generate(t.Context(), "a rose", "auto")
	if err != nil || got.URL != "https://example.org/a.png" || len(got.Data) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	all := srv.Drawings()
	if all[0].Prompt != `a "rose"` || all[0].Header.Get("Authorization") != "Bearer sk-secret" ||
		len(all[3].Edits) != 3 || all[3].Size != "1024x1024" {
		t.Errorf("sent %+v", all)
	}
}

func TestGenerateImageFails(t *testing.T) {
	t.Parallel()
	srv := openaitest.Start(nil)
	defer srv.Close()
	p := NewImageClient("gpt-image-1", &Options{BaseURL: srv.URL, Key: "sk-secret"})
	for name, tt := range map[string]struct {
		fault openaitest.Fault
		want  llm.Kind
	}{
		"key": {openaitest.Fault{Status: 401,
			Body: `{"error":{"message":"Incorrect API key provided: sk-secret"}}`}, llm.Unauthorized},
		"limit":      {openaitest.Fault{Status: 429}, llm.RateLimited},
		"page":       {openaitest.HTML502(), llm.Unavailable},
		"no JSON":    {openaitest.Fault{Status: 200, Body: "{"}, llm.Unavailable},
		"no picture": {openaitest.Fault{Status: 200, Body: `{"data":[{}]}`}, llm.Unavailable},
		"no base64": {openaitest.Fault{Status: 200, Body: `{"data":[{"b64_json":"%"}]}`},
			llm.Unavailable},
	} {
		srv.InjectDrawing(1, tt.fault)
		_, err := p.Generate(t.Context(), "a rose", "")
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != tt.want || strings.Contains(err.Error(), "secret") ||
			strings.Contains(err.Error(), srv.URL) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	srv.InjectDrawing(1, openaitest.Fault{Status: 200, Body: `{"data":[{"b64_json":"data:image/png;` +
		`base64,` + base64.StdEncoding.EncodeToString([]byte("x")) + `"}]}`})
	if got, err := p.Generate(t.Context(), "a rose", ""); err != nil || string(got.Data) != "x" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := p.Generate(t.Context(), "a rose", "7x7"); err == nil {
		t.Error("a size that there is not was taken")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Generate(canceled, "a rose", ""); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// A slowPicture has a first part that can be read at once. Its second part can be read only after
// sent is closed.
type slowPicture struct {
	data []byte
	sent chan struct{}
}

func (s slowPicture) ReadAt(b []byte, at int64) (int, error) {
	if at >= int64(len(s.data)/2) {
		<-s.sent
	}
	n := copy(b, s.data[at:])
	return n, nil
}

// A picture is read while it is sent, so that a large picture needs no memory.
func TestGenerateImageStreams(t *testing.T) {
	t.Parallel()
	picture := slowPicture{append(openaitest.Painted(), make([]byte, 8<<20)...), make(chan struct{})}
	size := int64(len(picture.data))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength <= size {
			t.Errorf("the length of the request is %d", r.ContentLength)
		}
		first, err := io.CopyN(io.Discard, r.Body, 1<<20)
		close(picture.sent)
		rest, failed := io.Copy(io.Discard, r.Body)
		if err != nil || failed != nil || first+rest != r.ContentLength {
			t.Errorf("%d and %d bytes came: %v, %v", first, rest, err, failed)
		}
		fmt.Fprint(w, `{"data":[{"url":"https://example.org/a.png"}]}`)
	}))
	defer srv.Close()
	p := NewImageClient("gpt-image-1", &Options{BaseURL: srv.URL})
	_, err := p.Edit(t.Context(), "blue", "", []Picture{
		{Name: "a.png", Type: "image/png", Content: picture, Size: size}})
	if err != nil {
		t.Error(err)
	}
}
