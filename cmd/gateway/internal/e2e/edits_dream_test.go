//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/memory"
	"gateway/store"
)

// calls returns a model that edits MEMORY.md as Dream.
func calls(old, text string) openaitest.Answer {
	return func(openaitest.Request) openaitest.Reply {
		arguments := fmt.Sprintf(`{"name":"MEMORY.md","old":%s,"new":%s}`, quoteJSON(old),
			quoteJSON(text))
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{
			{ID: "edit", Name: "edit_document", Arguments: arguments}}}
	}
}

// before returns a model that calls do before it answers.
func before(do func(), answer openaitest.Answer) openaitest.Answer {
	return func(r openaitest.Request) openaitest.Reply {
		do()
		return answer(r)
	}
}

// TestEditWhileDreaming checks that an edit by a person during a Dream is never lost, even if it
// contradicts Dream's change.
func TestEditWhileDreaming(t *testing.T) {
	const base = "# Memory\n\n- lives in Osaka\n- likes tea\n- has a cat\n- 40 years old\n"
	edited := strings.Replace(base, "Osaka", "Kyoto", 1)
	added := base + "- plays the violin\n"
	for _, test := range []struct {
		name  string
		byHim string // the document after the person's edit; "": the person deletes it
		want  string
	}{
		{"the same line", edited, edited},
		{"another line", added, strings.Replace(added, "Osaka", "Tokyo", 1)},
		{"all of it", "# Mine\n\nLeave me alone.\n", "# Mine\n\nLeave me alone.\n"},
		{"deleted", "", ""},
	} {
		for _, phase := range []string{"analysis", "edit"} {
			t.Run(test.name+"/"+phase, func(t *testing.T) {
				t.Parallel()
				s := newEditWorld(t)
				s.run()
				s.turn("hello")
				writeFile(t, s.own("MEMORY.md"), []byte(base))
				s.makeNotes()
				byHand := func() {
					err := os.Remove(s.own("MEMORY.md"))
					if test.byHim != "" {
						err = saveByRename(s.own("MEMORY.md"), test.byHim)
					}
					if err != nil {
						t.Error(err)
					}
				}
				s.set(func() {
					s.analyse = openaitest.Say("[MEMORY] lives in Tokyo, not Osaka")
					s.edit = calls("- lives in Osaka", "- lives in Tokyo")
					if phase == "analysis" {
						s.analyse = before(byHand, s.analyse)
					} else {
						s.edit = before(byHand, s.edit)
					}
				})
				s.tell("/dream", "I have changed my memory", "Not done", "nothing to keep")
				if got := s.read(s.own("MEMORY.md")); got != test.want {
					t.Errorf("MEMORY.md = %q, want %q", got, test.want)
				}
				prompt := s.turn("and now?")
				if test.want != "" && !strings.Contains(prompt, test.want[:20]) {
					t.Errorf("the prompt lacks %q", test.want)
				}
			})
		}
	}
}

// TestDreamVersions checks that Dream's versions need no other program and can be undone.
func TestDreamVersions(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := newEditWorld(t)
	s.run()
	s.makeNotes()
	s.set(func() {
		s.analyse = openaitest.Say("[MEMORY] has roses")
		s.edit = calls("", "- has roses")
	})
	said := s.tell("/dream", "I have changed my memory")
	_, id, _ := strings.Cut(said, "/dream-restore ")
	id, _, _ = strings.Cut(id, " ")
	if got := s.read(s.own("MEMORY.md")); got != "- has roses\n" {
		t.Errorf("MEMORY.md = %q", got)
	}
	s.tell("/dream-log", id)
	s.tell("/dream-log "+id, "+- has roses")
	s.tell("/dream-restore "+id, "I have undone")
	if got := s.read(s.own("MEMORY.md")); strings.Contains(got, "roses") {
		t.Errorf("MEMORY.md = %q after the change was taken back", got)
	}
}

// entries returns the history of Ann's scope from the table and from its file, and Dream's
// cursor.
func (s *editWorld) entries() (table []memory.Entry, dreamed int64, file []string) {
	s.t.Helper()
	s.look(func(db *store.DB) {
		space, read := memory.New(db, nil, nil).In(annScope), db.Read(s.t.Context())
		var err error
		if table, err = space.Entries(read, 0, 1000); err == nil {
			dreamed, err = space.Dreamed(read)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	})
	for line := range strings.Lines(s.read(s.own("history.jsonl"))) {
		var l struct{ Text string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.t.Errorf("history.jsonl has the line %q: %v", line, err)
		}
		file = append(file, l.Text)
	}
	return table, dreamed, file
}

// TestNonsense checks a model that returns nonsense, nothing or errors instead of notes and
// memory. No existing data is lost, people are told, and the work is done later.
func TestNonsense(t *testing.T) {
	for name, answer := range map[string]openaitest.Answer{
		"nonsense": openaitest.Say("as a language model I love roses"),
		"empty":    openaitest.Say(""),
		"error": func(openaitest.Request) openaitest.Reply {
			return openaitest.Reply{Fault: openaitest.Fault{Status: 400}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEditWorld(t)
			stop := s.run()
			s.makeNotes()
			const base = "# Memory\n\n- has a cat\n"
			writeFile(t, s.own("MEMORY.md"), []byte(base))
			s.set(func() { s.analyse, s.notes = answer, answer })
			s.tell("/dream", "That has not worked yet")
			for range 3 { // until the gateway gives up
				stop()
				s.due()
				stop = s.run()
				s.turn("are you there?")
			}
			s.checkKept(base)
			if name != "nonsense" { // nonsense is a note like any other
				for range 4 {
					s.turn("more about the roses")
				}
				s.tell("/compact", "That has not worked yet")
			}
			s.set(func() {
				s.notes, s.analyse = nil, openaitest.Say("[MEMORY] has roses")
				s.edit = calls("", "- has roses")
			})
			stop()
			s.due()
			s.run()
			s.rest()
			s.tell("/dream", "I have changed", "no new notes", "Not done")
			if got := s.read(s.own("MEMORY.md")); got != base+"- has roses\n" {
				t.Errorf("MEMORY.md = %q in the end", got)
			}
			table, dreamed, file := s.entries()
			if len(table) == 0 || dreamed != int64(len(table)) || len(file) != len(table) {
				t.Errorf("%d entries, %d of them in the file and %d read by Dream", len(table),
					len(file), dreamed)
			}
		})
	}
}

// checkKept checks that Dream has changed nothing.
func (s *editWorld) checkKept(base string) {
	s.t.Helper()
	if got := s.read(s.own("MEMORY.md")); got != base {
		s.t.Errorf("MEMORY.md = %q, want %q", got, base)
	}
	if _, dreamed, _ := s.entries(); dreamed != 0 {
		s.t.Errorf("Dream's cursor is %d, want 0", dreamed)
	}
}
