package importer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// A newer nanobot, also its export, writes the state of the model's provider into a session, the
// number of archived messages with another name, and the state of an unfinished turn beside it. The
// metadata has the notes of the archived messages.
func TestProviderState(t *testing.T) {
	d := newFixture(t)
	d.write(
		"config.json", `{}`,
		"workspace/sessions/dGVsZWdyYW06NDI.jsonl", `{"_type":"metadata","key":"telegram:42",`+
			`"created_at":"2026-02-16T10:00:00","last_archived":1,"metadata":{"title":"Rome",`+
			`"_last_summary":{"text":"We spoke of Rome.","last_active":"2026-02-16T10:00:30"}}}`+"\n"+
			`{"_type":"provider_state","state":{"kind":"openai_responses","version":1}}`+"\n"+
			`{"role":"user","content":"old","timestamp":"2026-02-16T10:00:00"}`+"\n"+
			`{"role":"user","content":"new","timestamp":"2026-02-16T10:01:00"}`+"\n",
		"workspace/sessions/dGVsZWdyYW06NDI.checkpoint.json", `{"version":1,"checkpoint":{}}`,
	)
	d.want(Nanobot,
		"new session workspace/sessions/dGVsZWdyYW06NDI.jsonl > telegram/42: 2 messages")
	want := []string{"10:01 user new"}
	if got := d.transcript(named("telegram/42")); !slices.Equal(got, want) {
		t.Errorf("the prompt holds %q, want %q", got, want)
	}
	s, err := session.ReadSummary(d.target.DB.Read(t.Context()), named("telegram/42"))
	if err != nil || s.Text != "We spoke of Rome." {
		t.Errorf("the notes are %q, %v", s.Text, err)
	}
}

// A number of archived messages that is too high means nothing, as in nanobot.
func TestArchivedTooMany(t *testing.T) {
	d := newFixture(t)
	d.write("config.json", `{}`, "workspace/sessions/telegram_42.jsonl",
		`{"_type":"metadata","key":"telegram:42","metadata":{},"last_consolidated":7}`+"\n"+
			`{"role":"user","content":"hello","timestamp":"2026-02-16T10:00:00"}`+"\n")
	d.want(Nanobot, "new session workspace/sessions/telegram_42.jsonl > telegram/42: 1 messages")
	want := []string{"10:00 user hello"}
	if got := d.transcript(named("telegram/42")); !slices.Equal(got, want) {
		t.Errorf("the prompt holds %q, want %q", got, want)
	}
}

// Some models have made tool calls without an id or a name. Such calls are left out, and what else
// the conversation has is imported.
func TestOddToolCalls(t *testing.T) {
	d := newFixture(t)
	const call = `{"id":%q,"type":"function","function":{"name":%q,"arguments":"{}"}}`
	calls := strings.Join([]string{fmt.Sprintf(call, "", "exec"), fmt.Sprintf(call, "1", ""),
		fmt.Sprintf(call, "2", "look")}, ",")
	d.write("config.json", `{}`, "workspace/sessions/telegram_42.jsonl",
		`{"_type":"metadata","key":"telegram:42","created_at":"2026-02-16T10:00:00"}`+"\n"+
			`{"role":"user","content":"hello"}`+"\n"+
			`{"role":"assistant","content":"I look.","tool_calls":[`+calls+"]}\n"+
			`{"role":"tool","tool_call_id":"","content":"x"}`+"\n"+
			`{"role":"tool","tool_call_id":"2","content":"a cat"}`+"\n"+
			`{"role":"assistant","content":"A cat."}`+"\n")
	d.want(Nanobot, "new session workspace/sessions/telegram_42.jsonl > telegram/42: 4 messages, "+
		"1 system, empty or damaged messages left out")
	want := []string{"10:00 user hello", "10:00 assistant I look. look{}", "10:00 tool a cat",
		"10:00 assistant A cat."}
	if got := d.transcript(named("telegram/42")); !slices.Equal(got, want) {
		t.Errorf("the transcript is %q, want %q", got, want)
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
