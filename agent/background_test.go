package agent

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/speech"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/store"
)

// heldNotesModel is a model for notes. A request for which when is true waits until release is
// closed.
type heldNotesModel struct {
	llm.Model
	release <-chan struct{}
	when    func(r llm.Request) bool
}

func (m heldNotesModel) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	if m.when(r) {
		select {
		case <-m.release:
		case <-ctx.Done():
		}
	}
	return m.Model.Stream(ctx, r)
}

// silence is a speech synthesizer that returns only when its context ends.
type silence struct{}

func (silence) Speak(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The voice notes of many chats can wait for an API that does not answer. They do not delay
// background work on the memory, such as /compact.
func TestVoicesOfOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.deps.Voice = &speech.Voice{Synthesizer: silence{}, MaxText: 100,
			Readable:  func(md string) string { return md },
			Withholds: func(string) bool { return false },
			Plays:     func(string) bool { return true }}
		w.opts.Voice = speech.Always
		w.atLength()
		w.start()
		w.say("b", "/voice never")
		w.talks("b", 0, 10)
		const chats = 40
		for i := range chats {
			chat := fmt.Sprint("voice-", i)
			w.say(chat, "hello")
			w.settle()
		}
		if n := w.count("SELECT count(*) FROM chores WHERE kind = 'speak'"); n != chats {
			t.Fatalf("%d voice notes wait, want %d", n, chats)
		}
		before := len(w.outbox("b"))
		w.say("b", "/compact")
		w.settle()
		if n := len(w.outbox("b")) - before; n != 1 {
			t.Errorf("the other conversation has %d answers, want 1", n)
		}
	})
}

// Background work of one conversation does not delay other conversations, even if it is much work
// or takes long.
func TestTasksOfOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		release := make(chan struct{})
		defer close(release)
		w.deps.Notes = heldNotesModel{w.clerk(), release, func(r llm.Request) bool {
			return strings.Contains(r.Messages[1].Text, "thing 0")
		}}
		w.start()
		w.talks("a", 0, 10)
		w.say("a", "/compact")
		for range 50 {
			w.say("a", "/dream-log")
		}
		w.say("b", "/dream-log")
		w.settle()
		if n := len(w.outbox("b")); n != 1 {
			t.Errorf("the other conversation has %d answers, want 1", n)
		}
	})
}

// A background task continues when it is due, even while another task takes long.
func TestDueDuringLongTask(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		release := make(chan struct{})
		defer close(release)
		w.deps.Notes = heldNotesModel{w.clerk(), release, func(llm.Request) bool { return true }}
		w.start()
		w.talks("a", 0, 10)
		w.say("a", "/compact") // takes long
		w.tells(5, "b", "hello", "/forget me now")
		w.sends()
		w.sleep(10 * time.Second)
		if n := w.count("SELECT count(*) FROM chores WHERE kind = 'erase'"); n != 0 {
			t.Errorf("%d tasks that erase are left, want none", n)
		}
	})
}

// Two very long compactions let the background tasks of other conversations run in between.
func TestLongCompactionsYield(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		for _, chat := range []string{"a", "b"} {
			w.talks(chat, 0, 1)
			w.exec(`INSERT INTO messages (session, turn, body, created_ms)
				WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)
				SELECT $1, 1, '{"role":"user","text":"old"}', 0 FROM n`, "test/"+chat)
		}
		const each = 10 * time.Second
		w.clerk().set(func(c *notesModel) { c.wait = each })
		w.say("a", "/compact")
		w.say("b", "/new")
		w.say("c", "/dream-log")
		w.sleep((turn.MaxCompactions + 2) * each)
		if n := len(w.outbox("c")); n != 1 {
			t.Errorf("the other conversation has %d answers, want 1", n)
		}
		w.sleep(time.Hour)
		told := w.outbox("a")
		const want = "I have made notes of 1994 older messages"
		if got := told[len(told)-1].Text; !strings.HasPrefix(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if n := w.count("SELECT count(*) FROM chores WHERE kind <> 'dream'"); n != 0 {
			t.Errorf("%d chores are left", n)
		}
	})
}

// A person who asks for Dream while it runs gets exactly one answer, at once.
func TestDreamDuringDream(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.opts.DreamEvery = 2 * time.Hour
		release := make(chan struct{})
		w.deps.Notes = llmtest.Func("notes", func(r llm.Request) llmtest.Step {
			if strings.Contains(r.Messages[0].Text, "long-term notes") {
				return llmtest.Say("- 2026-02-16: Ada has a dog.")
			}
			return held(llmtest.Say("[SKIP]"), release)
		})
		w.start()
		w.talks("a", 0, 10)
		w.say("a", "/compact")
		w.sleep(time.Minute)
		w.exec("UPDATE chores SET due_ms = 0")
		w.d.background.Wake()
		w.sleep(10 * time.Second) // Dream is running
		before := len(w.outbox("a"))
		w.say("a", "/dream")
		close(release)
		w.sleep(5 * time.Minute)
		w.say("a", "and on", "/new") // new notes for Dream; nobody waits for this run
		w.sleep(5 * time.Hour)
		told := w.outbox("a")[before:]
		if len(told) != 3 || !strings.HasPrefix(told[0].Text, "There are no new notes") {
			t.Errorf("told %+v", told)
		}
	})
}

// Each person who asks for Dream before it begins gets an answer.
func TestDreamAskedTwice(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		release := make(chan struct{})
		w.deps.Notes = llmtest.Func("notes", func(r llm.Request) llmtest.Step {
			if strings.Contains(r.Messages[0].Text, "long-term notes") {
				return held(llmtest.Say("- 2026-02-16: Ada has a dog."), release)
			}
			return llmtest.Say("[SKIP]")
		})
		w.start()
		w.talks("a", 0, 10)
		w.say("a", "/compact") // works with the same scope
		before := len(w.outbox("a"))
		w.say("a", "/dream", "/dream")
		close(release)
		w.sleep(time.Hour)
		told := w.outbox("a")[before:]
		if len(told) != 3 || !strings.Contains(told[0].Text, "asked for that just now") {
			t.Errorf("told %+v, want an answer to each command", told)
		}
	})
}

// Dream removes old notes that it has read, and keeps new ones.
func TestDreamTrimsHistory(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.opts.DreamEvery, w.opts.History = 10*time.Minute, 4*time.Hour
		w.deps.Notes = llmtest.Func("notes", func(r llm.Request) llmtest.Step {
			if strings.Contains(r.Messages[0].Text, "long-term notes") {
				return llmtest.Say("- 2026-02-16: Ada has a dog.")
			}
			return llmtest.Say("[SKIP]")
		})
		w.start()
		notes := func() (n, newest int) {
			return w.count("SELECT count(*) FROM memory_entries"),
				w.count("SELECT COALESCE(max(cursor), 0) FROM memory_entries")
		}
		for day, want := range [][2]int{{1, 1}, {2, 2}, {2, 3}} {
			w.talks("a", 10*day, 10)
			w.say("a", "/compact")
			w.sleep(15 * time.Minute)
			if n, newest := notes(); n != want[0] || newest != want[1] {
				t.Fatalf("day %d: there are %d notes up to %d, want %v", day, n, newest, want)
			}
			w.sleep(150 * time.Minute)
		}
	})
}

// A background task that panics is tried again later, and the dispatcher keeps running.
func TestTaskPanics(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.deps.Versions = nil // a programming error
		w.start()
		w.tx(func(tx *store.Tx) error {
			return w.d.background.Add(tx, background.Task{
				Work:   background.Work{Kind: background.Log, Scope: "person-5"},
				Notice: &bus.OutboundMessage{To: at("a")}})
		})
		w.sleep(time.Minute)
		w.lived()
		if n := w.count("SELECT attempts FROM chores"); n == 0 {
			t.Error("the chore was not put off")
		}
		told := w.outbox("a")
		if len(told) != 1 || !strings.Contains(told[0].Text, "try again later") {
			t.Errorf("told %+v", told)
		}
	})
}

// When a scope is merged into another one, its files move only after other work on it has ended.
func TestMergeWaits(t *testing.T) {
	t.Parallel()
	merge := background.Task{Work: background.Work{
		Kind: background.Merge, Scope: "person-5", Session: "chat-a"}}
	if got := fmt.Sprint((&background.Merger{}).Scopes(&merge)); got != "[person-5 chat-a]" {
		t.Errorf("a merge works with %s", got)
	}
	erase := background.Task{Work: background.Work{Kind: background.Erase, Scope: "person-5"},
		State: []byte(`{"scopes": ["person-5", "chat-a"]}`)}
	if got := fmt.Sprint((&background.Eraser{}).Scopes(&erase)); got != "[person-5 chat-a]" {
		t.Errorf("erasing works with %s", got)
	}
	inWorld(t, func(w *world) {
		w.atLength()
		release := make(chan struct{})
		w.deps.Notes = heldNotesModel{w.clerk(), release, func(llm.Request) bool { return true }}
		w.start()
		w.talks("a", 0, 10)
		w.must(w.deps.Documents.Save("chat-test+a", document.User, "- Name: Ada\n", ""))
		w.say("a", "/compact") // works with the scope of the chat
		w.tells(5, "a", "now you know me")
		w.sleep(time.Minute)
		text, _, err := w.deps.Documents.Read("chat-test+a", document.User)
		if err != nil || text == "" {
			t.Errorf("the files have moved while something worked with them: %q, %v", text, err)
		}
		close(release)
		w.sleep(time.Minute)
		text, _, err = w.deps.Documents.Read("person-5", document.User)
		if err != nil || text == "" {
			t.Errorf("the files have not moved: %q, %v", text, err)
		}
	})
}

// A merge moves everything that is in a scope, also documents with other names and the files of
// its skills.
func TestMergeMovesAllFiles(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		w.say("a", "hello")
		const from, to = memory.Scope("chat-test+a"), memory.Scope("person-5")
		for name, text := range map[string]string{"travel.md": "to Rome", "plans.md": "a garden",
			"skills/tea/SKILL.md": "green tea", "skills/tea/scripts/brew.sh": "boil",
			"skills/bread/list.txt": "flour"} {
			w.must(w.deps.Documents.Save(from, name, text, ""))
		}
		w.must(w.deps.Documents.Save(to, "plans.md", "a house", ""))
		w.must(w.deps.Documents.Save(to, "skills/tea/SKILL.md", "black tea", ""))
		w.tells(5, "a", "now you know me")
		w.sleep(time.Minute)
		for name, want := range map[string]string{"travel.md": "to Rome", "plans.md": "a house",
			"plans-2.md": "a garden", "skills/tea/SKILL.md": "black tea",
			"skills/tea-2/SKILL.md": "green tea", "skills/tea-2/scripts/brew.sh": "boil",
			"skills/bread/list.txt": "flour"} {
			if got, _, err := w.deps.Documents.Read(to, name); err != nil || got != want {
				t.Errorf("%s is %q, %v, want %q", name, got, err, want)
			}
		}
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}

// A merge also moves documents whose texts it can't join, and files that people have put beside the
// documents. Those that it can't join get a number if there is already such a document.
func TestMergeMovesWhatItCantJoin(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		w.say("a", "hello")
		const from, to = "chat-test+a", "person-5"
		write := func(scope, name, text string) {
			name = filepath.Join(w.opts.MemoryPath, scope, name)
			w.must(os.MkdirAll(filepath.Dir(name), 0o700))
			w.must(os.WriteFile(name, []byte(text), 0o600))
		}
		const utf16 = "\xff\xfeA\x00d\x00a\x00"
		write(from, document.User, utf16)
		write(to, document.User, "- Name: Bob\n")
		write(from, document.Memory, "plays the violin\n")
		write(to, document.Memory, "\xff\xfeB\x00o\x00b\x00")
		write(from, document.Heartbeat, strings.Repeat("- tea\n", 100_000))
		write(to, document.Heartbeat, strings.Repeat("- bread\n", 100_000))
		write(from, "skills/tea/SKILL.md", utf16)
		write(from, "plans.md", "a garden")
		write(from, "recipes/bread.txt", "flour")
		w.tells(5, "a", "now you know me")
		w.sleep(time.Minute)
		for name, want := range map[string]string{document.User: "- Name: Bob\n", "USER-2.md": utf16,
			document.Memory: "\xff\xfeB\x00o\x00b\x00", "MEMORY-2.md": "plays the violin\n",
			document.Heartbeat: strings.Repeat("- bread\n", 100_000),
			"HEARTBEAT-2.md":   strings.Repeat("- tea\n", 100_000), "skills/tea/SKILL.md": utf16,
			"plans.md": "a garden", "recipes/bread.txt": "flour"} {
			got, err := os.ReadFile(filepath.Join(w.opts.MemoryPath, to, name))
			if err != nil || string(got) != want {
				t.Errorf("%s is %.40q, %v, want %.40q", name, got, err, want)
			}
		}
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}

// A turn of another conversation can write into a scope after the scope was merged. What the turn
// writes is merged, too.
func TestMergeOfWhatComesLate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("hi"), held(llmtest.Say("done"), release),
			llmtest.Say("linked"))
		linked := false
		w.outside.known = func(_ store.Queryer, id int64) (bool, error) {
			return id != 5 || !linked, nil
		}
		w.start()
		w.put(person(w.message("a", "hello"), 5))
		w.put(person(w.message("b", "hello"), 5))
		w.put(person(w.message("b", "write it down"), 5)) // its turn is held back
		linked = true
		w.put(person(w.message("a", "and now"), 9))
		w.sleep(time.Minute)
		w.remembers("person-5", memory.Fact{Key: "code", Value: "tulip", Pinned: true})
		w.must(w.deps.Documents.Save("person-5", document.User, "- Name: Ada\n", ""))
		close(release)
		w.sleep(time.Minute)
		facts, _, err := w.deps.Memory.In("person-9").Always(w.read(), 0)
		if err != nil || len(facts) != 1 {
			t.Errorf("person-9 knows %v, %v", facts, err)
		}
		text, _, err := w.deps.Documents.Read("person-9", document.User)
		if err != nil || text == "" {
			t.Errorf("the document has not moved: %q, %v", text, err)
		}
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}

// A write of such a turn is not lost, even if it happens at the moment when the files are merged.
func TestMergeWhileTurnWrites(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		write := func() {}
		w.deps.Versions = version.New(w.deps.DB, &version.Options{Now: func() time.Time {
			write() // when the new version is stored, the files of the old scope have been read
			return time.Now()
		}})
		release := make(chan struct{})
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("hi"), held(llmtest.Say("done"), release),
			llmtest.Say("linked"))
		linked := false
		w.outside.known = func(_ store.Queryer, id int64) (bool, error) {
			return id != 5 || !linked, nil
		}
		w.start()
		w.put(person(w.message("a", "hello"), 5))
		w.put(person(w.message("b", "hello"), 5))
		w.must(w.deps.Documents.Save("person-5", document.User, "- Name: Ada\n", ""))
		w.must(w.deps.Documents.Save("person-5", "skills/tea/SKILL.md", "green tea", ""))
		w.put(person(w.message("b", "write it down"), 5)) // its turn is held back
		linked = true
		write = func() {
			write = func() {}
			w.must(w.deps.Documents.Save("person-5", "late.md", "by the late turn", ""))
		}
		w.put(person(w.message("a", "and now"), 9))
		w.sleep(time.Minute)
		// A document that was merged is not merged again, even if somebody edits it in the meantime.
		_, hash, err := w.deps.Documents.Read("person-9", document.User)
		w.must(err)
		w.must(w.deps.Documents.Save("person-9", document.User, "- Name: Bob\n", hash))
		_, hash, err = w.deps.Documents.Read("person-9", "skills/tea/SKILL.md")
		w.must(err)
		w.must(w.deps.Documents.Save("person-9", "skills/tea/SKILL.md", "black tea", hash))
		w.sleep(time.Minute)
		close(release)
		w.sleep(time.Minute)
		for name, want := range map[string]string{document.User: "- Name: Bob\n",
			"skills/tea/SKILL.md": "black tea", "skills/tea-2/SKILL.md": "",
			"late.md": "by the late turn"} {
			if got, _, err := w.deps.Documents.Read("person-9", name); err != nil || got != want {
				t.Errorf("%s is %q, %v, want %q", name, got, err, want)
			}
		}
		if _, err := os.Stat(filepath.Join(w.opts.MemoryPath, "person-5")); !os.IsNotExist(err) {
			t.Errorf("the folder of the old scope is left: %v", err)
		}
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}
