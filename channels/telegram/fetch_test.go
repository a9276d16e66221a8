package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/channels"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

// document makes person 42 send data and returns its reference.
func document(
	t *testing.T, api *telegramtest.Server, c *telegram.Channel, f telegramtest.File,
) string {
	t.Helper()
	f.Kind = "document"
	api.SayFile(42, 42, "", f)
	_, a := sole(t, receive(t, api, c))
	return a.Ref
}

func TestFetch(t *testing.T) {
	api, c, _ := start(t)
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	ref := document(t, api, c, telegramtest.File{Name: "a b#?%.txt", Data: data})
	var got bytes.Buffer
	if err := c.Fetch(t.Context(), ref, &got); err != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("Fetch = %v with %d bytes, want %d", err, got.Len(), len(data))
	}
}

func TestFetchErrors(t *testing.T) {
	refused := func(err error) bool { return errors.Is(err, channels.ErrRefused) }
	again := func(err error) bool { return err != nil && !errors.Is(err, channels.ErrRefused) }
	account := func(err error) bool {
		_, ok := errors.AsType[*channels.AccountError](err)
		return ok
	}
	for _, tt := range []struct {
		name  string
		file  telegramtest.File
		set   func(*telegramtest.Server)
		check func(error) bool
		words string
	}{
		{"too big", telegramtest.File{Data: []byte("x"), Size: 21 << 20}, nil, refused, "too big"},
		{"gone", telegramtest.File{Data: []byte("x")},
			func(s *telegramtest.Server) { s.ForgetFiles() }, refused, "no longer exists"},
		{"outage", telegramtest.File{Data: []byte("x")}, func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "file", Effect: telegramtest.Drop})
		}, again, ""},
		{"page", telegramtest.File{Data: []byte("x")}, func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "file", Effect: telegramtest.Page})
		}, again, "502"},
		{"rate", telegramtest.File{Data: []byte("x")}, func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "file", RetryAfter: 4})
		}, again, "rate"},
		{"token", telegramtest.File{Data: []byte("x")}, func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "file", Code: 401, Text: "Unauthorized"})
		}, account, "BotFather"},
		{"no such id", telegramtest.File{Data: []byte("x")}, func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "getFile", Code: 400,
				Text: "Bad Request: invalid file_id"})
		}, refused, "invalid file_id"},
		{"not now", telegramtest.File{Data: []byte("x")}, func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "getFile", Code: 400,
				Text: "Bad Request: wrong file_id or the file is temporarily unavailable"})
		}, again, "now"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, log := start(t)
			ref := document(t, api, c, tt.file)
			if tt.set != nil {
				tt.set(api)
			}
			err := c.Fetch(t.Context(), ref, new(bytes.Buffer))
			if !tt.check(err) || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("Fetch = %v, want an error about %q", err, tt.words)
			}
			if strings.Contains(err.Error()+log.String(), "SECRET") {
				t.Errorf("Fetch = %v: the token shows", err)
			}
		})
	}
}

func TestFetchOfNothing(t *testing.T) {
	api, c, _ := start(t)
	if err := c.Fetch(t.Context(), "", new(bytes.Buffer)); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Fetch of nothing = %v, want %v", err, channels.ErrRefused)
	}
	if err := c.Fetch(t.Context(), "x&y=\x00", new(bytes.Buffer)); !errors.Is(
		err, channels.ErrRefused) {
		t.Errorf("Fetch of nonsense = %v, want %v", err, channels.ErrRefused)
	}
	full := errors.New("disk full")
	ref := document(t, api, c, telegramtest.File{Data: []byte("x")})
	if err := c.Fetch(t.Context(), ref, failing{full}); !errors.Is(err, full) {
		t.Errorf("Fetch to a full disk = %v, want %v", err, full)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestFetchStalls(t *testing.T) {
	api, c, _ := start(t)
	ref := document(t, api, c, telegramtest.File{Data: []byte("x")})
	api.Inject(telegramtest.Fault{Method: "file", Effect: telegramtest.Hang})
	c.SetStall(20 * time.Millisecond)
	err := c.Fetch(t.Context(), ref, new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), "no progress") ||
		errors.Is(err, context.Canceled) || errors.Is(err, channels.ErrRefused) {
		t.Errorf("Fetch = %v, want an error that says that there was no progress", err)
	}
}

func TestFetchLocalFiles(t *testing.T) {
	folder := t.TempDir()
	api, c, log := startWith(t, &telegramtest.Options{LocalFiles: folder},
		telegram.Options{LocalFiles: folder})
	ref := document(t, api, c, telegramtest.File{Data: []byte("large"), Size: 1 << 30})
	var got bytes.Buffer
	if err := c.Fetch(t.Context(), ref, &got); err != nil || got.String() != "large" {
		t.Errorf("Fetch = %v with %q, want the file", err, &got)
	}
	api.ForgetFiles()
	err := c.Fetch(t.Context(), ref, new(bytes.Buffer))
	if !errors.Is(err, channels.ErrRefused) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("Fetch of a removed file = %v, want %v", err, channels.ErrRefused)
	}
	if strings.Contains(log.String(), "SECRET") {
		t.Errorf("the log shows the token: %s", log)
	}
	if n := c.Limits(ada).File; n != 2000<<20 {
		t.Errorf("files may have %d bytes", n)
	}
}

func TestFetchReadsNothingElse(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("password"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	link := filepath.Join(folder, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct{ name, folder, path string }{
		{"not configured", "", secret},
		{"elsewhere", folder, secret},
		{"link", folder, link},
		{"up", folder, folder + "/../" + filepath.Base(outside) + "/secret"},
		{"folder", folder, folder},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, c, _ := startWith(t, nil, telegram.Options{
				LocalFiles: tt.folder, Transport: answering{`{"file_path":"` + tt.path + `"}`},
			})
			var got bytes.Buffer
			err := c.Fetch(t.Context(), "x", &got)
			if !errors.Is(err, channels.ErrRefused) || got.Len() > 0 {
				t.Errorf("Fetch = %v with %q, want %v", err, &got, channels.ErrRefused)
			}
		})
	}
}

// A server with --local answers getFile only when it has downloaded the file.
func TestFetchWaitsForLocalServer(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "video.mp4")
	if err := os.WriteFile(name, []byte("large"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := telegram.New("tg", token, &telegram.Options{LocalFiles: folder,
			Transport: slowServer(func(r *http.Request) (*http.Response, error) {
				select {
				case <-time.After(5 * time.Minute):
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(
					fmt.Sprintf(`{"ok":true,"result":{"file_id":"x","file_path":%q}}`, name)))}, nil
			})})
		var got bytes.Buffer
		if err := c.Fetch(t.Context(), "x", &got); err != nil || got.String() != "large" {
			t.Errorf("Fetch = %v with %q, want the file", err, &got)
		}
	})
}

// A slowServer is a function that implements [http.RoundTripper].
type slowServer func(*http.Request) (*http.Response, error)

func (f slowServer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
