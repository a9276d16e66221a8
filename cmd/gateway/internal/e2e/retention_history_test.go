//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
)

// flowers are the words in the notes of TestHistoryIsTrimmed, in the order of the notes.
var flowers = []struct {
	word  string
	notes int
	age   time.Duration
}{
	{"peonies", 20, 90 * 24 * time.Hour}, // as many notes as one run of Dream reads
	{"tulips", 10, 60 * 24 * time.Hour},
	{"lilies", 12, time.Hour},
}

// TestHistoryIsTrimmed checks that Dream removes old notes, once it has read them, from the
// history file and from the search. Young notes, unread notes and all other data stay. A kill -9
// after the file was changed loses nothing: the next run removes the rest.
func TestHistoryIsTrimmed(t *testing.T) {
	t.Parallel()
	s := newEditWorld(t)
	s.configure(quiet + "\n[memory]\ndream_every = \"0s\"\n[retention]\nhistory = \"720h\"")
	unread := newHold()
	defer unread.release()
	runs := 0
	s.set(func() {
		s.analyse = func(openaitest.Request) openaitest.Reply {
			var run int
			s.set(func() { runs++; run = runs })
			if run == 2 { // this run begins by itself a minute after the first
				unread.wait()
			}
			return say("[SKIP]")
		}
	})
	first := s.start()
	first.ready()
	s.wantReply(annID, `DO remember {"key":"garden","value":"faces south"}`, "the tools said")
	const ownLine = "{\"remark\":\"Ann has written this line\"}\n"
	const base = "# Memory\n\n- has a cat\n"
	writeFile(t, s.own("MEMORY.md"), []byte(base))
	writeFile(t, s.own("history.jsonl"), []byte(ownLine+notes()))
	if out, err := s.gateway("memory", "reindex", string(annScope)); err != nil ||
		!strings.Contains(out, "42 added") {
		t.Fatalf("reindex: %v\n%s", err, out)
	}
	s.find("peonies", "tulips", "lilies")

	s.tell("/dream", "I have read the new notes")
	s.checkTrimmed(22, 22, 20) // Dream has not read the tulips yet
	s.find("tulips", "lilies")
	first.kill()
	unread.release()

	broken := s.start("GATEWAY_FAULT=trimming:1")
	s.telegram.Say(annID, annID, "/dream")
	if code := broken.exited(patience); code != -1 {
		t.Fatalf("the gateway ended with code %d\n%s", code, broken.newest())
	}
	s.checkTrimmed(22, 12, 40) // the file was changed, but not the rows

	s.start().ready()
	s.await("the answer of the interrupted run", func() bool { return s.dreams() == 2 })
	s.tell("/dream", "I have read the new notes", "There are no new notes")
	s.find("lilies")
	s.checkTrimmed(12, 12, 42)
	if got := s.read(s.own("history.jsonl")); !strings.HasPrefix(got, ownLine) {
		t.Errorf("the file begins with %.60q, want Ann's line", got)
	}
	if got := s.read(s.own("MEMORY.md")); got != base {
		t.Errorf("MEMORY.md = %q, want %q", got, base)
	}
	s.wantReply(annID, `DO recall {"query":"garden"}`, "faces south")
	if n := s.dreams(); n != 3 {
		t.Errorf("the three commands were answered %d times: %q", n, s.texts(annID))
	}
}

// dreams returns how many answers to /dream Ann has received.
func (s *editWorld) dreams() int {
	all := strings.Join(s.texts(annID), "\n")
	return strings.Count(all, "I have read the new notes") +
		strings.Count(all, "There are no new notes")
}

// notes returns a history file with notes about the flowers.
func notes() string {
	var b strings.Builder
	cursor := 0
	for _, f := range flowers {
		at := time.Now().Add(-f.age).UTC().Format(time.RFC3339)
		for range f.notes {
			cursor++
			fmt.Fprintf(&b, "{\"cursor\":%d,\"time\":%q,\"session\":\"telegram/7\","+
				"\"text\":\"- there was talk of %s\"}\n", cursor, at, f.word)
		}
	}
	return b.String()
}

// checkTrimmed checks how many notes are in the table, how many of the newest are in the file,
// and up to which note Dream has read them.
func (s *editWorld) checkTrimmed(rows, lines int, read int64) {
	s.t.Helper()
	table, dreamed, file := s.entries()
	file = file[1:] // without Ann's line
	if len(table) != rows || len(file) != lines || dreamed != read {
		s.t.Fatalf("%d notes are in the table, %d in the file and %d read by Dream, want %d, %d and %d",
			len(table), len(file), dreamed, rows, lines, read)
	}
	for i, text := range file {
		if e := table[rows-lines+i]; e.Text != text || e.Cursor != int64(43-lines+i) {
			s.t.Errorf("note %d of the file is %q, and note %d of the table is %q", 43-lines+i, text,
				e.Cursor, e.Text)
		}
	}
}

// find checks that the agent and the owner find the notes about these flowers, and no others.
func (s *editWorld) find(words ...string) {
	s.t.Helper()
	for _, f := range flowers {
		heard, printed := "Nothing was found", slices.Contains(words, f.word)
		if printed {
			heard = "talk of " + f.word
		}
		s.wantReply(annID, fmt.Sprintf("DO history_search {\"query\":%q}", f.word), heard)
		out, err := s.gateway("memory", "search", string(annScope), f.word)
		if err != nil || strings.Contains(out, "talk of "+f.word) != printed {
			s.t.Errorf("gateway memory search %s: %v\n%s", f.word, err, out)
		}
	}
}
