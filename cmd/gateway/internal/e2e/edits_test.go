//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/memory"
	"gateway/store"
)

// An editWorld is a gateway whose memory people edit by hand while it runs. A test can change its
// model for notes and for Dream.
type editWorld struct {
	*world
	mu      sync.Mutex
	notes   openaitest.Answer // by default a short note about roses
	analyse openaitest.Answer // by default [SKIP]
	edit    openaitest.Answer // by default no edit
}

// annScope is the scope of Ann's direct chat. The account is open to everybody, so the memory
// belongs to the chat and not to a person.
const annScope = memory.Scope("chat-telegram+7")

func newEditWorld(t *testing.T) *editWorld {
	s := &editWorld{}
	s.world = newWorld(t, worldOptions{answer: s.answer,
		channel: quiet + "\n[memory]\ndream_every = \"0s\""})
	s.model.Keep(1000)
	return s
}

func (s *editWorld) answer(r openaitest.Request) openaitest.Reply {
	s.mu.Lock()
	notes, analyse, edit := s.notes, s.analyse, s.edit
	s.mu.Unlock()
	system := r.Messages[0].Content
	switch {
	case strings.HasPrefix(system, "You keep the long-term notes"):
		return reply(notes, say("- 2026-01-02: there was talk of roses"), r)
	case !strings.HasPrefix(system, "You look after the long-term memory"):
		return followOrders(r)
	case len(r.Tools) == 0:
		return reply(analyse, say("[SKIP]"), r)
	case r.Messages[len(r.Messages)-1].Role == "tool":
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{Name: "done", Arguments: "{}"}}}
	}
	return reply(edit, openaitest.Reply{ToolCalls: []openaitest.ToolCall{
		{Name: "done", Arguments: "{}"}}}, r)
}

// reply returns the reply of answer, or of usual if answer is nil.
func reply(
	answer openaitest.Answer, usual openaitest.Reply, r openaitest.Request,
) openaitest.Reply {
	if answer == nil {
		return usual
	}
	return answer(r)
}

// set changes the model.
func (s *editWorld) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// own returns the path of a document in Ann's scope. shared returns the path of a shared
// document.
func (s *editWorld) own(name string) string {
	return filepath.Join(s.home, "memory", string(annScope), filepath.FromSlash(name))
}

func (s *editWorld) shared(name string) string {
	return filepath.Join(s.home, "shared", filepath.FromSlash(name))
}

// turn makes Ann write, waits for the answer, and returns the system prompt of that turn.
func (s *editWorld) turn(text string) string {
	s.t.Helper()
	s.telegram.Say(annID, annID, text)
	s.await("an answer to "+text, func() bool {
		return heard(s.world, annID, "you said") &&
			heard(s.world, annID, text)
	})
	list := s.model.Requests()
	return list[len(list)-1].Messages[0].Content
}

// tell makes Ann send a command and waits for an answer that contains one of the texts.
func (s *editWorld) tell(command string, answers ...string) string {
	s.t.Helper()
	before := s.telegram.SentCount(annID)
	defer func() {
		if s.t.Failed() {
			s.t.Logf("answers to %s: %q", command, s.texts(annID)[before:])
		}
	}()
	s.telegram.Say(annID, annID, command)
	found := ""
	s.await("an answer to "+command, func() bool {
		for _, text := range s.texts(annID)[before:] {
			for _, want := range answers {
				if strings.Contains(text, want) {
					found = text
				}
			}
		}
		return found != ""
	})
	return found
}

// read returns the content of a file, or "" if it does not exist.
func (s *editWorld) read(path string) string {
	s.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(text)
}

// due makes all background tasks due now.
func (s *editWorld) due() {
	s.t.Helper()
	s.look(func(db *store.DB) {
		err := db.Tx(s.t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE chores SET due_ms = 0")
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
	})
}

// makeNotes makes the gateway summarise Ann's conversation into notes.
func (s *editWorld) makeNotes() {
	s.t.Helper()
	for i := range 8 {
		s.turn(fmt.Sprint("the roses want water ", i))
	}
	s.tell("/compact", "I have made notes of")
}

// documents returns a function for the path of each document. The function returns the document's
// text with a given word.
func (s *editWorld) documents() map[string]func(word string) string {
	plain := func(word string) string { return "# By hand\n\n- the word is " + word + "\n" }
	skill := func(word string) string {
		return "---\nname: roses\ndescription: the word is " + word + "\n---\n\nWater them.\n"
	}
	return map[string]func(string) string{
		s.own("USER.md"): plain, s.own("MEMORY.md"): plain, s.own("SOUL.md"): plain,
		s.shared("AGENTS.md"): plain, s.shared("SOUL.md"): plain, s.shared("USER.md"): plain,
		s.shared("TOOLS.md"): plain, s.shared("IDENTITY.md"): plain,
		s.own("skills/own/SKILL.md"): skill, s.shared("skills/shared/SKILL.md"): skill,
	}
}

// TestHandEdits checks that a manual edit of a document applies from the next turn on, for each
// way to save it. An unreadable document is reported and blocks nothing.
func TestHandEdits(t *testing.T) {
	t.Parallel()
	s := newEditWorld(t)
	s.run()
	s.turn("hello")
	words, turns := 0, 0
	for _, step := range handEdits {
		t.Run(step.name, func(t *testing.T) {
			defer func(of testing.TB) { s.t = of }(s.t)
			s.t = t
			texts := make(map[string]string) // words by path
			same := make(map[string]int)     // number of files, by name
			for path, text := range s.documents() {
				words++
				same[filepath.Base(path)]++
				texts[path] = fmt.Sprintf("w%03d", words) // all words have the same length
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := step.save(path, text(texts[path])); err != nil {
					t.Fatal(err)
				}
			}
			turns++
			prompt := s.turn(fmt.Sprint("turn ", turns))
			for path, word := range texts {
				doc := filepath.Base(path) != "SKILL.md"
				found := strings.Contains(prompt, "the word is "+word)
				if found != step.seen {
					t.Errorf("%s with %s: in the prompt: %t, want %t", path, word, found, step.seen)
				}
				n := strings.Count(prompt, "["+filepath.Base(path)+" can't be read: ")
				if want := same[filepath.Base(path)]; doc && step.notice && n != want ||
					!step.notice && n > 0 {
					t.Errorf("%s: %d notices in the prompt, want %d if any", path, n, want)
				}
			}
			if n := strings.Count(prompt, "the word is w"); step.seen && n != len(texts) ||
				!step.seen && n > 0 {
				t.Errorf("the prompt has %d words, some of before: %s", n, prompt)
			}
		})
	}
}

// handEdits lists ways to save a document.
var handEdits = []struct {
	name   string
	save   func(path, text string) error
	seen   bool // the next prompt has the text
	notice bool // the next prompt has a notice
}{
	{name: "new", save: overwrite, seen: true},
	{name: "renamed", save: saveByRename, seen: true},
	{name: "renamed again", save: saveByRename, seen: true},
	{name: "truncated", save: overwrite, seen: true},
	{name: "deleted", save: func(path, _ string) error { return os.Remove(path) }},
	{name: "made again", save: saveByRename, seen: true},
	{name: "binary", notice: true, save: func(path, text string) error {
		return os.WriteFile(path, []byte("\x7fELF\x00\x01"+text), 0o600)
	}},
	{name: "text again", save: overwrite, seen: true},
	{name: "huge", notice: true, save: func(path, text string) error {
		return os.WriteFile(path, []byte(strings.Repeat("x", 5<<20)+text), 0o600)
	}},
	{name: "small again", save: overwrite, seen: true},
	{name: "folder", notice: true, save: func(path, _ string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o700)
	}},
	{name: "file again", save: saveByRename, seen: true},
	{name: "link", notice: true, save: func(path, text string) error {
		if err := os.WriteFile(path+".target", []byte(text), 0o600); err != nil {
			return err
		}
		return replaceBy(path, func() error { return os.Symlink(path+".target", path) })
	}},
	{name: "no link any more", save: saveByRename, seen: true},
	{name: "pipe", notice: true, save: func(path, _ string) error {
		return replaceBy(path, func() error { return syscall.Mkfifo(path, 0o600) })
	}},
	{name: "no pipe any more", save: saveByRename, seen: true},
	// Root can read files of any mode.
	{name: "no rights", seen: os.Geteuid() == 0, notice: os.Geteuid() != 0,
		save: func(path, text string) error {
			return errorOr(overwrite(path, text), func() error { return os.Chmod(path, 0) })
		}},
	{name: "rights again", save: saveByRename, seen: true},
}

func overwrite(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

// saveByRename saves like vim: a new file replaces the old one.
func saveByRename(path, text string) error {
	if err := os.WriteFile(path+"~new", []byte(text), 0o600); err != nil {
		return err
	}
	return replaceBy(path, func() error { return os.Rename(path+"~new", path) })
}

// replaceBy removes the file at path, if there is one, and then calls then. It renames SOUL.md
// instead of removing it.
func replaceBy(path string, then func() error) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().IsRegular() && strings.HasSuffix(path, "SOUL.md") {
		return errorOr(os.Rename(path, path+"~"), then) // as vim does with "backupcopy=no"
	}
	if err == nil {
		return errorOr(os.RemoveAll(path), then)
	}
	return then()
}

func errorOr(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}
