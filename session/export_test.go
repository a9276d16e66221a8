package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/bus/bustest"
	"gateway/store"
)

var named = bustest.Session

// export returns the exported file of a session.
func (f *fixture) export(key Key) string {
	f.t.Helper()
	var b bytes.Buffer
	f.must(Export(f.read(), key, &b))
	return b.String()
}

// importFile imports a file.
func (f *fixture) importFile(text string, opts ImportOptions) (int, error) {
	n := 0
	return n, f.tx(func(tx *store.Tx) error {
		head, lines, err := Read(strings.NewReader(text))
		if err == nil {
			n, err = Import(tx, head, lines, opts)
		}
		return err
	})
}

// eventful creates a session that has everything that a session can have.
func eventful(f *fixture) {
	f.t.Helper()
	first := f.begin(chat, "hello")
	f.must(f.append(first, "<b>& one"))
	f.must(f.tx(func(tx *store.Tx) error {
		call := llm.Message{Role: llm.Assistant, Reasoning: "hm", ToolCalls: []llm.ToolCall{{
			ID: "c1", Name: "exec", Arguments: `{"command":"ls"}`,
			Extra: map[string]json.RawMessage{"sign": json.RawMessage(`{"a":"<"}`)}}},
			Extra: map[string]json.RawMessage{"details": json.RawMessage(`[1, 2]`)}}
		result := llm.Message{Role: llm.ToolRole, ToolCallID: "c1", Text: "ünï\u2028code\n"}
		picture := llm.Message{Role: llm.User, Text: "look",
			Images: []llm.Image{{Path: "telegram/42/a.png", Type: "image/png"}}}
		return Append(tx, first, f.now.Add(1234*time.Millisecond), call, result, picture)
	}))
	list, err := EntriesAfter(f.read(), KeyOf(chat), 0, 10)
	f.must(err)
	f.must(f.tx(func(tx *store.Tx) error {
		if err := EndTurn(tx, first, Done, f.now); err != nil {
			return err
		}
		before, err := ReadSummary(tx, KeyOf(chat))
		if err != nil {
			return err
		}
		if _, err := Compact(tx, KeyOf(chat), before, list[1].ID, "notes", 7); err != nil {
			return err
		}
		err = errors.Join(SetChoice(tx, KeyOf(chat), QueueMode, "collect", f.now),
			SetChoice(tx, KeyOf(chat), Model, "small", f.now), SetChoice(tx, KeyOf(chat), Effort, "low",
				f.now),
			SetChoice(tx, KeyOf(chat), Voice, "always", f.now),
			SetChoice(tx, KeyOf(chat), Activity, "full", f.now))
		if err != nil {
			return err
		}
		return Spend(tx, KeyOf(chat), Bill{Context: 77, Cost: 0.1,
			Usage: llm.Usage{Input: 1, Output: 2, Cached: 3}})
	}))
	second := f.begin(chat, "again")
	f.must(f.tx(func(tx *store.Tx) error {
		return EndTurn(tx, second, Done, f.now, llm.Message{Role: llm.Assistant, Text: "bye"})
	}))
}

// A session that is exported, imported and exported again is the same, byte for byte, both in
// its own database and in a new one.
func TestExportImportExport(t *testing.T) {
	f := newFixture(t)
	eventful(f)
	want := f.export(KeyOf(chat))
	for _, setting := range []string{`"queue_mode":"collect"`, `"model":"small"`,
		`"activity":"full"`} {
		if !strings.Contains(want, setting) {
			t.Errorf("the file lacks %s:\n%s", setting, want)
		}
	}
	if n := strings.Count(want, "\n"); n != 8 {
		t.Errorf("the file has %d lines, want 8:\n%s", n, want)
	}
	if _, err := f.importFile(want, ImportOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("importing over it = %v, want %v", err, ErrExists)
	}
	for _, place := range []*fixture{f, newFixture(t)} {
		var archived []string
		n, err := place.importFile(want, ImportOptions{Replace: true,
			Archive: func(_ *store.Tx, list []Entry) error {
				archived = nil // the transaction may run more than once
				for _, e := range list {
					archived = append(archived, e.Message.Text)
				}
				return nil
			}})
		place.must(err)
		if got := place.export(KeyOf(chat)); got != want || n != 7 {
			t.Errorf("after the import of %d messages it is\n%s\nwant\n%s", n, got, want)
		}
		if got := fmt.Sprint(archived); got != "[hello <b>& one]" {
			t.Errorf("archived %s, want what is before the start", got)
		}
		turn := place.begin(chat, "and on")
		if turn.Number != 3 || turn.First {
			t.Errorf("the next turn is number %d, want 3", turn.Number)
		}
	}
}

// A session with a running turn is not replaced.
func TestImportBusy(t *testing.T) {
	f := newFixture(t)
	f.begin(chat, "hello")
	file := f.export(KeyOf(chat))
	if _, err := f.importFile(file, ImportOptions{Replace: true}); !errors.Is(err, ErrBusy) {
		t.Errorf("Import = %v, want %v", err, ErrBusy)
	}
	f.wantTranscript(chat, "hello")
}

func TestExportNone(t *testing.T) {
	f := newFixture(t)
	if err := Export(f.read(), named("tg/none"), new(bytes.Buffer)); !errors.Is(err, ErrNone) {
		t.Errorf("Export = %v, want %v", err, ErrNone)
	}
}

// The error about a mistake names its line. A file with a mistake is not imported at all.
func TestImportMistakes(t *testing.T) {
	f := newFixture(t)
	eventful(f)
	good := strings.SplitAfter(f.export(KeyOf(chat)), "\n")
	good = good[:len(good)-1]
	replaced := func(line int, old, new string) string {
		lines := strings.Join(good[:line-1], "")
		if !strings.Contains(good[line-1], old) {
			t.Fatalf("line %d has no %s: %s", line, old, good[line-1])
		}
		return lines + strings.Replace(good[line-1], old, new, 1) + strings.Join(good[line:], "")
	}
	for _, c := range []struct{ name, file, want string }{
		{"empty", "", "line 1: the file is not"},
		{"other", "{\"role\":\"user\"}\n", "line 1: the file is not"},
		{"newer", replaced(1, `"version":1`, `"version":2`), "line 1: the format has version 2"},
		{"unknown", replaced(1, `"turns":`, `"colour":1,"turns":`),
			`line 1: json: unknown field "colour"`},
		{"no chat", replaced(1, `"chat":"a"`, `"chat":""`), "line 1: account or chat"},
		{"scope", replaced(1, `"turns":`, `"scope":"../x","turns":`), "line 1: "},
		{"start", replaced(1, `"start":2`, `"start":99`), "line 1: start: 99"},
		{"created", replaced(1, `"created":"1`, `"created":"x1`), "line 1: created: "},
		{"role", replaced(2, `"role":"user"`, `"role":"system"`), `line 2: "system" is not a role`},
		{"time", replaced(3, `"time":"1`, `"time":"x1`), "line 3: time: "},
		{"broken", replaced(4, `"role"`, `role`), "line 4: invalid character"},
		{"call", replaced(4, `"id":"c1"`, `"id":""`), "line 4: a tool call lacks an id"},
		{"result", replaced(5, `"tool_call_id":"c1"`, `"tool_call_id":""`), "line 5: the result has"},
		{"turn", replaced(7, `"turn":2`, `"turn":3`), "line 7: turn: want 1 or 2"},
		{"two", replaced(8, "}\n", "}{}\n"), "line 8: unexpected data"},
		{"short", strings.Join(good[:7], ""), "line 8: the file ends after 6 messages, not 7"},
		{"long", strings.Join(good, "") + good[7], "line 10: the file ends after 8 messages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			empty := newFixture(t)
			_, err := empty.importFile(c.file, ImportOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Import = %v, want %s", err, c.want)
			}
			if list, err := Keys(empty.read()); err != nil || len(list) > 0 {
				t.Errorf("there are sessions %v, %v, want none", list, err)
			}
		})
	}
}

// Carriage returns, blank lines and a byte order mark change nothing.
func TestImportWindows(t *testing.T) {
	f := newFixture(t)
	eventful(f)
	want := f.export(KeyOf(chat))
	other := newFixture(t)
	windows := "\xef\xbb\xbf" + strings.ReplaceAll(want, "\n", "\r\n\r\n")
	_, err := other.importFile(windows, ImportOptions{})
	other.must(err)
	if got := other.export(KeyOf(chat)); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

func TestReadLinesBounds(t *testing.T) {
	next := ReadLines(strings.NewReader("12345\n"+strings.Repeat("x", 200_000)+"\n"), 199_999)
	if line, n, err := next(); string(line) != "12345" || n != 1 || err != nil {
		t.Errorf("the first line is %q, %d, %v", line, n, err)
	}
	if _, n, err := next(); err == nil || n != 2 {
		t.Errorf("the second line is number %d with %v, want 2 and an error", n, err)
	}
}

// Read returns for any input. A file that it accepts can be written and read again with the same
// result.
func FuzzRead(f *testing.F) {
	head := `{"format":"gateway-session","version":1,"key":"a/b","account":"a","chat":"b",` +
		`"turns":1,"usage":{"input":0,"output":0,"cached":0},"cost":0,"context":0,"created":` +
		`"2026-01-01T00:00:00.000Z","updated":"2026-01-01T00:00:00.000Z","messages":1,` +
		`"start":0}` + "\n"
	f.Add(head + `{"time":"2026-01-01T00:00:00.000Z","turn":1,"role":"user","text":"x"}` + "\n")
	f.Add(head)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		head, lines, err := Read(strings.NewReader(text))
		if err != nil {
			if _, ok := errors.AsType[*LineError](err); !ok {
				t.Errorf("Read = %v, want a LineError", err)
			}
			return
		}
		var file bytes.Buffer
		out := json.NewEncoder(&file)
		if err := out.Encode(head.json()); err != nil {
			t.Fatal(err)
		}
		count := 0
		for line, err := range lines {
			if err != nil {
				return
			}
			count++
			at := line.Time.UTC().Format(exportTime)
			if err := out.Encode(lineJSON{at, line.Turn, line.Message}); err != nil {
				t.Fatal(err)
			}
		}
		_, lines, err = Read(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatalf("the head is not read again: %v in\n%s", err, file.String())
		}
		for _, err := range lines {
			if err != nil {
				t.Fatalf("not read again: %v in\n%s", err, file.String())
			}
			count--
		}
		if count != 0 {
			t.Errorf("%d messages are lost", count)
		}
	})
}
