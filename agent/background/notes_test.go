package background

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"gateway/agent/llm"
	"gateway/session"
)

// entries returns a transcript: u is a person, a the assistant, t the result of a tool.
func entries(roles string, size int) []session.Entry {
	var list []session.Entry
	for i, r := range roles {
		e := session.Entry{ID: int64(i + 1), Size: size,
			Time: time.Date(2026, 3, 1+i, 12, 0, 0, 0, time.UTC)}
		e.Message.Role = map[rune]llm.Role{'u': llm.User, 'a': llm.Assistant, 't': llm.ToolRole}[r]
		e.Message.Text = fmt.Sprint("text ", i)
		list = append(list, e)
	}
	return list
}

func TestCountRemovable(t *testing.T) {
	long := strings.Repeat("at", 40)
	for _, test := range []struct {
		roles   string
		n, need int
		want    int
	}{
		{"uaua", 4, 10, 2},                           // one turn is enough
		{"uaua", 4, 11 * 2, 4},                       // one turn is not enough
		{"uaua", 3, 1000, 2},                         // the entries that stay must begin with a person
		{"uatata", 5, 1000, 0},                       // a turn is removed whole or not at all
		{"uatata", 6, 1, 6},                          // nothing follows the turn
		{"aua", 3, 1, 1},                             // a beginning without a person
		{"", 0, 100, 0},                              // no entries
		{strings.Repeat("ua", 50), 100, 100_000, 60}, // the most that is removed at once
		{"u" + long + "ua", 83, 100_000, 81},         // except for a single turn that is longer
	} {
		if got := countRemovable(entries(test.roles, 10), test.n, test.need); got != test.want {
			t.Errorf("pick(%s, %d, %d) = %d, want %d", test.roles, test.n, test.need, got, test.want)
		}
	}
}

// A turn that has read a page is foreign, except for the words of people in it. Other turns are
// not foreign.
func TestSplit(t *testing.T) {
	list := entries("uatatuaua", 10)
	for i, turn := range []int64{1, 1, 1, 1, 1, 1, 1, 2, 2} { // a person steers the first turn
		list[i].Turn = turn
	}
	list[2].Message.Foreign = "the page https://example.org"
	ids := func(list []session.Entry) (s string) {
		for _, e := range list {
			s += fmt.Sprint(e.ID, " ")
		}
		return s
	}
	own, foreign := split(list)
	if got, want := ids(own)+"/ "+ids(foreign), "1 6 8 9 / 1 2 3 4 5 6 7 "; got != want {
		t.Errorf("Split = %s, want %s", got, want)
	}
	list[7].Message.Foreign = "a forwarded message"
	if own, foreign = split(list); ids(own) != "1 6 " || len(foreign) != 9 {
		t.Errorf("Split = %s and %s when all turns are foreign", ids(own), ids(foreign))
	}
}

// For any transcript, the entries that stay begin with a person, and no call loses its result. At
// least one turn is removed if that is possible.
func TestPickKeepsTurnsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(1, 40).Draw(t, "turns") {
			b.WriteString("u" + strings.Repeat("at", rapid.IntRange(0, 50).Draw(t, "rounds")) + "a")
		}
		list := entries(b.String(), rapid.IntRange(1, 500).Draw(t, "size"))
		n := rapid.IntRange(0, len(list)).Draw(t, "n")
		need := rapid.IntRange(1, 20_000).Draw(t, "need")
		got := countRemovable(list, n, need)
		if got > n {
			t.Fatalf("%d of %d go", got, n)
		}
		if got < len(list) && got > 0 && list[got].Message.Role != llm.User {
			t.Errorf("what stays begins with role %s", list[got].Message.Role)
		}
		first := strings.Index(b.String()[1:], "u") + 1 // the end of the first turn
		if first > 0 && n >= first && got == 0 {
			t.Errorf("nothing goes of %d, of which the first turn has %d", n, first)
		}
		last := strings.LastIndex(b.String()[:got], "u")
		if got > maxPart && strings.Contains(b.String()[1:got], "u") && last < maxPart &&
			got-last < maxPart && last > 0 {
			t.Errorf("%d go, the last turn of them beginning at %d", got, last)
		}
	})
}

// Each line of a request is a JSON value, so that no text can end the frame or pass for another
// speaker. The request stays within its size.
func TestRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := entries(rapid.StringMatching(`u[uat]{0,30}`).Draw(t, "roles"), 10)
		for i := range list {
			list[i].Message.Text = rapid.String().Draw(t, "text")
		}
		size := rapid.IntRange(2000, 20_000).Draw(t, "size")
		req := notesRequest(list, time.UTC, size)
		text := req.Messages[1].Text
		if len(text) > size+10 || !utf8.ValidString(text) {
			t.Errorf("a text of %d bytes, want %d at most", len(text), size)
		}
		if strings.Contains(text, "\n…\n") {
			return // the text was cut in the middle of lines
		}
		for line := range strings.Lines(text) {
			var said map[string]string
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
	})
}

func TestNotes(t *testing.T) {
	list := entries("ua", 10)
	list[0].Message.Text = "[Monday 2026-02-16 12:51 +08:00] My order is AB-1234/7, see " +
		"https://shop.example/o?id=9 (or ann@example.org), in /srv/data/x.csv; call 5550123. 12 pcs."
	list[1].Message.Text = "Noted AB-1234/7."
	const want = "- 2026-03-01: ordered something\n- Also mentioned: AB-1234/7, " +
		"https://shop.example/o?id=9, ann@example.org, /srv/data/x.csv, 5550123"
	if got := keptNotes(" - 2026-03-01: ordered something\n", list); got != want {
		t.Errorf("notes are\n%s\nwant\n%s", got, want)
	}
	for _, nothing := range []string{"", " \n", "(nothing)", "- (Nothing).\n"} {
		if got := keptNotes(nothing, list); got != "" {
			t.Errorf("notes of %q are %q, want none", nothing, got)
		}
	}
	if got := keptNotes("- all: "+want, list); strings.Count(got, "Also mentioned") != 1 {
		t.Errorf("what the notes have is added again: %s", got)
	}
	if got := keptNotes(strings.Repeat("é", maxEntry), list); len(got) > maxEntry+1000 {
		t.Errorf("notes of %d bytes", len(got))
	}
}

// A number with several parts is kept whole, because half of a number is wrong.
func TestNotesKeepNumbersWhole(t *testing.T) {
	list := entries("u", 10)
	list[0].Message.Text = "It is 181/815/08155 or 88-4410-K, on 2026-03-01 at 3:52:07, for " +
		"212,400.50, in v2.14.1. Not 1/2, 7.5."
	const want = "- a\n- Also mentioned: 181/815/08155, 88-4410-K, 2026-03-01, 3:52:07, " +
		"212,400.50, v2.14.1"
	if got := keptNotes("- a", list); got != want {
		t.Errorf("notes are\n%s\nwant\n%s", got, want)
	}
}

func TestDump(t *testing.T) {
	list := entries(strings.Repeat("uat", 200), 10)
	for i := range list {
		list[i].Message.Text += strings.Repeat(" word", 200)
	}
	got := dump(list, time.UTC)
	if len(got) > maxDump+100 || !strings.Contains(got, "- 2026-03-01, user: text 0 word") ||
		strings.Contains(got, "tool:") || !strings.HasSuffix(got, "can be searched]") {
		t.Errorf("a dump of %d bytes:\n%s", len(got), got)
	}
}
