package importer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/session"
)

// A large session is imported as a stream, one line at a time.
func TestLargeSession(t *testing.T) {
	d := newFixture(t)
	path := filepath.Join(d.home, "workspace", "sessions", "telegram_42.jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 500
	text := strings.Repeat("word ", 1_000)
	for i := range messages {
		fmt.Fprintf(f, "{\"role\":\"user\",\"content\":\"%d %s\"}\n", i, text)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d.want(Nanobot, "new session workspace/sessions/telegram_42.jsonl > telegram/42: 500 messages")
	info, err := session.ReadInfo(d.target.DB.Read(t.Context()), named("telegram/42"))
	if err != nil || info.Messages != messages {
		t.Errorf("%d messages, %v, want %d", info.Messages, err, messages)
	}
}

// Reading a file ends with a LineError, or with messages that a transcript accepts.
func FuzzReadSession(f *testing.F) {
	f.Add(`{"_type":"metadata","key":"a:b","created_at":"2026-02-03T10:00:00"}` + "\n" +
		`{"role":"user","content":[{"type":"text","text":"x"}],"media":["/a/b.png"]}`)
	f.Add(`{"role":"assistant","content":null,"tool_calls":[{"id":"1","name":"x","arguments":{}}]}`)
	f.Add("{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		head, lines, err := ReadSession(strings.NewReader(text), time.UTC)
		if err == nil {
			_, _, err = ReadHead(head, lines, now)
		}
		if err != nil {
			if _, ok := errors.AsType[*session.LineError](err); !ok || errors.Is(err, io.EOF) {
				t.Errorf("reading ended with %v, want a LineError", err)
			}
			return
		}
		_, lines, err = ReadSession(strings.NewReader(text), time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		for line, err := range WithRole(lines, now) {
			if err != nil {
				t.Fatal(err)
			}
			if err := session.CheckMessage(line.Message); err != nil || line.Time.IsZero() {
				t.Errorf("%+v is kept: %v", line, err)
			}
		}
	})
}
