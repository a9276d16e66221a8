package agent

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/memory"
)

// lived checks that the dispatcher has not ended.
func (w *world) lived() {
	w.t.Helper()
	select {
	case err := <-w.ended:
		w.cancel = nil
		w.t.Fatalf("the dispatcher has ended: %v", err)
	default:
	}
}

// long makes the conversation of a chat so long, and the context window so small, that the next
// turn must make notes first.
func (w *world) long(chat string) *llmtest.Model {
	w.t.Helper()
	m := w.atLength()
	w.start()
	w.talks(chat, 0, 20)
	w.must(w.stop())
	w.opts.ContextWindow, w.opts.MaxOutput = 4096, 1024
	return m
}

// A failure to make notes before a turn ends at most that turn, and never the gateway.
func TestNotesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		set  func(w *world)
		do   func(w *world, release chan struct{})
		want string // part of the last message to the person
	}{
		{name: "the budget is spent", set: func(w *world) {
			w.opts.Usage = budget.New(&budget.Options{Day: budget.Limit{Tokens: 1}})
		}, want: "the budget is spent"},
		{name: "stopped", do: func(w *world, _ chan struct{}) { w.say("a", "/stop") },
			want: "Stopped."},
		{name: "a new conversation", do: func(w *world, _ chan struct{}) { w.say("a", "/new") },
			want: "A new conversation begins."},
		{name: "halted", do: func(w *world, release chan struct{}) {
			w.say("b", "/halt")
			w.say("a", "/stop")
		}, want: "Stopped."},
		{name: "it takes too long", set: func(w *world) { w.opts.Timeout = time.Minute },
			do: func(w *world, _ chan struct{}) { w.sleep(2 * time.Minute) }, want: turn.SayTimeout},
		{name: "interrupted", set: func(w *world) { w.opts.QueueMode = pool.Interrupt },
			do: func(w *world, release chan struct{}) {
				w.say("a", "newer")
				close(release)
			}, want: "Answer to newer."},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.long("a")
				release := make(chan struct{})
				if test.set != nil {
					test.set(w)
				}
				if test.do != nil {
					w.clerk().set(func(c *notesModel) { c.hold = release })
				}
				w.start()
				w.say("a", "what now")
				if test.do != nil {
					test.do(w, release)
				}
				w.sleep(time.Second)
				w.lived()
				told := w.outbox("a")
				if last := told[len(told)-1].Text; !strings.Contains(last, test.want) {
					t.Errorf("told %q at last, want %q", last, test.want)
				}
			})
		})
	}
}

// The thoughts of a model count towards the limit of its answer. A model that fills the limit of
// notes with them still makes notes. If even its own limit cuts the answer off, no fact is cut.
func TestNotesOfAModelThatThinks(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.long("a")
		thinker := llmtest.Func("thinker", func(r llm.Request) llmtest.Step {
			step := llmtest.Say("- 2026-11-22: The room costs 120 euros.\n- 2026-11-22: The flight costs 3")
			if step.Finish = llm.FinishLength; r.MaxOutput > 0 {
				step.Text = nil
			}
			return step
		})
		w.deps.Notes = thinker
		w.start()
		w.say("a", "what now")
		for _, text := range w.entries("a") {
			if !strings.HasPrefix(text, "- 2026-11-22: The room costs 120 euros.") ||
				strings.Contains(text, "flight") {
				t.Errorf("the notes are %q", text)
			}
		}
		if n := len(w.entries("a")); n == 0 || len(thinker.Requests()) != n+1 {
			t.Errorf("%d notes took %d calls, want one call more", n, len(thinker.Requests()))
		}
	})
}

// Notes that the provider's filter breaks off lack most of the conversation, so the beginnings of
// its messages take their place.
func TestFilteredNotes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.long("a")
		w.deps.Notes = llmtest.Func("notes", func(llm.Request) llmtest.Step {
			step := llmtest.Say("- 2026-11-22: The room costs 1")
			step.Finish = llm.FinishFiltered
			return step
		})
		w.start()
		w.say("a", "what now")
		for _, text := range w.entries("a") {
			if !strings.HasPrefix(text, "[No notes could be made of this part") {
				t.Errorf("the notes are %q", text)
			}
		}
		if len(w.entries("a")) == 0 {
			t.Error("there are no notes")
		}
	})
}

// The tokens of a call for notes that breaks off are counted, too. Otherwise people could exceed
// their budget by stopping the call again and again. After /forget the tokens are counted for no
// person.
func TestNotesThatBreakOff(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"/stop", "/forget me now"} {
		t.Run(end, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.long("a")
				w.clerk().set(func(c *notesModel) { c.hold = make(chan struct{}) })
				w.start()
				const used = "SELECT sum(input) FROM usage WHERE kind = 'day'"
				before := w.count(used)
				w.tells(5, "a", "what now")
				w.tells(5, "a", end)
				w.sleep(time.Minute)
				w.lived()
				if n := w.count(used) - before; n < 1000 {
					t.Errorf("%d tokens are counted for the notes, want those of the prompt", n)
				}
				n := w.count("SELECT count(*) FROM usage WHERE kind = 'person' AND key = '5' AND input > 0")
				if want := map[string]int{"/stop": 1}[end]; n != want {
					t.Errorf("%d people are charged, want %d", n, want)
				}
			})
		})
	}
}

// After a compaction the rest of a conversation begins with a message of a person, however many
// messages its turns have.
func TestCompactKeepsTurnsWhole(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("look", tool.Pure, always("seen")))
		m := llmtest.Func("looks", func(r llm.Request) llmtest.Step {
			newest := r.Messages[len(r.Messages)-1]
			if newest.Role == llm.User && !strings.Contains(newest.Text, "after") {
				return uses("look", "look", "look")
			}
			return llmtest.Say("done")
		})
		w.deps.Model = checked{m, t}
		w.start()
		w.talks("a", 0, 4) // turns of six messages each
		w.say("a", "/compact")
		w.sleep(time.Minute)
		w.say("a", "after")
		requests := m.Requests()
		got := lines(requests[len(requests)-1].Messages[1:])
		if want := 2*6 + 1; len(got) != want || got[0] != "user: thing 2" {
			t.Errorf("the prompt is %q, want the last two turns", got)
		}
	})
}

// A turn that has more messages than a compaction reads at once becomes notes like any other.
func TestNotesOfAHugeTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		w.talks("a", 0, 1)
		turn := w.count("SELECT max(id) FROM turns")
		w.exec(`INSERT INTO messages (session, turn, body, created_ms)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
			SELECT 'test/a', $1, '{"role":"assistant","text":"and"}', 0 FROM n`, turn)
		w.talks("a", 1, 1)
		w.say("a", "/new")
		w.sleep(time.Minute)
		notes := strings.Join(w.entries("a"), "\n")
		if !strings.Contains(notes, "thing 0") || !strings.Contains(notes, "thing 1") {
			t.Errorf("the notes are %q", notes)
		}
	})
}

// A transcript can be much longer than the part that becomes notes before a turn. People are
// answered without waiting for the rest, which becomes notes in the background.
func TestVeryLongTranscript(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.opts.ContextWindow, w.opts.MaxOutput = 4096, 1024
		strict := llmtest.Func("strict", func(r llm.Request) llmtest.Step {
			if n := prompt.TextSize(r.Messages); n > 4096*prompt.BytesPerToken {
				return llmtest.Fail(llm.ContextTooLong)
			}
			return llmtest.Say("ok")
		})
		w.start()
		w.talks("a", 0, 1)
		w.must(w.stop())
		w.exec(`INSERT INTO messages (session, turn, body, created_ms)
			WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1499)
			SELECT 'test/a', 1, CASE i % 2
				WHEN 0 THEN '{"role":"user","text":"old ' || i || ' ' || hex(zeroblob(100)) || '"}'
				ELSE '{"role":"assistant","text":"yes"}' END, 0 FROM n`)
		w.deps.Model = checked{strict, t}
		w.start()
		w.say("a", "and now")
		told := w.outbox("a")
		if got := told[len(told)-1].Text; got != "ok" {
			t.Fatalf("told %q", got)
		}
		w.sleep(10 * time.Minute)
		notes := strings.Join(w.entries("a"), "\n")
		for _, want := range []string{"old 0 ", "old 748 ", "old 1400 "} {
			if !strings.Contains(notes, want) {
				t.Errorf("%q is not in the notes", want)
			}
		}
		asked := len(w.clerk().asked)
		w.say("a", "and then")
		w.sleep(10 * time.Minute)
		if n := len(w.clerk().asked); n != asked {
			t.Errorf("notes were asked for %d times more, want none", n-asked)
		}
	})
}

// While a background task makes notes of a conversation, the conversation can move to another
// scope. The notes then go into the new scope. If the conversation was erased, they are
// discarded.
func TestNotesOfWhatHasMoved(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		for _, command := range []string{"/compact", "/new"} {
			chat := command[1:]
			w.talks(chat, 0, 10)
			release := make(chan struct{})
			w.clerk().set(func(c *notesModel) { c.hold = release })
			w.say(chat, command)
			w.put(person(w.message(chat, "now you know me"), 5)) // while the notes are being made
			close(release)
			w.sleep(10 * time.Minute)
			stray := w.count("SELECT count(*) FROM memory_scopes WHERE name LIKE 'chat-%'")
			list, err := w.deps.Memory.In("person-5").Newest(w.read(), 0, 100)
			w.must(err)
			n := 0
			for _, e := range list {
				if e.Session == "test/"+chat {
					n += strings.Count(e.Text, "thing 3\n")
				}
			}
			if stray != 0 || n != 1 {
				t.Errorf("%s: %d other scopes have something, and the person has it %d times",
					command, stray, n)
			}
		}
	})
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		for i := range 10 {
			w.put(person(w.message("a", fmt.Sprint("zanzibar ", i)), 5))
		}
		release := make(chan struct{})
		w.clerk().set(func(c *notesModel) { c.hold = release })
		w.put(person(w.message("a", "/compact"), 5))
		w.put(person(w.message("a", "/forget me now"), 5))
		w.put(person(w.message("a", "hello"), 5), person(w.message("a", "again"), 5))
		close(release)
		w.sleep(time.Minute)
		w.sends()
		w.sleep(time.Minute)
		if left := w.traces("zanzibar"); len(left) > 0 {
			t.Errorf("traces are left in %q", left)
		}
		if s := w.summary("a"); s.Text != "" || s.Start != 0 {
			t.Errorf("the new conversation begins after %d with %q", s.Start, s.Text)
		}
	})
}

// The model for notes may have a smaller window than the other models. It then gets less text at
// once.
func TestNotesModelWithASmallWindow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		clerk := w.clerk()
		w.deps.Notes = smallModel{clerk, 3000}
		w.start()
		w.talks("a", 0, 10)
		w.say("a", "/compact")
		w.sleep(time.Second)
		var list []string
		entries, err := w.deps.Memory.In(memory.OfChat(at("a"))).Entries(w.read(), 0, 10)
		w.must(err)
		for _, e := range entries {
			list = append(list, e.Text)
		}
		if all := strings.Join(list, "\n"); !strings.Contains(all, "thing 0\n") {
			t.Errorf("the notes are %q", all)
		}
	})
}

// smallModel is a model that accepts at most size bytes.
type smallModel struct {
	llm.Model
	size int
}

func (m smallModel) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	if prompt.TextSize(r.Messages) > m.size {
		return func(yield func(llm.Event, error) bool) {
			yield(llm.Event{}, &llm.Error{Kind: llm.ContextTooLong})
		}
	}
	return m.Model.Stream(ctx, r)
}

// If a call of the model finds the prompt too long, it is repeated once with a shorter prompt.
// Each call of a turn has this second attempt. A turn fails if the shorter prompt is too long,
// too.
func TestTooLongMoreThanOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("look", tool.Pure, always(strings.Repeat("seen ", 1000))))
		tooLong := llmtest.Fail(llm.ContextTooLong)
		w.model.Queue(uses("look"), tooLong, uses("look"), tooLong, llmtest.Say("ok"),
			tooLong, tooLong)
		w.start()
		w.say("a", "hello")
		w.wantAnswers("a", "ok")
		w.say("a", "and again")
		if told := w.outbox("a"); !strings.Contains(told[len(told)-1].Text, "too long") {
			t.Errorf("told %q", told[len(told)-1].Text)
		}
		w.wantQuiet()
	})
}

// Even if the window is small, the memory and the notes leave room for the conversation. Notes
// are not made for each message.
func TestSmallWindow(t *testing.T) {
	t.Parallel()
	for _, window := range []int{2048, 8192, 16_384} {
		inWorld(t, func(w *world) {
			m := w.atLength()
			w.opts.ContextWindow, w.opts.MaxOutput = window, 512
			w.start()
			for i := range 40 {
				w.say("a", fmt.Sprint("thing ", i, strings.Repeat(" and more", window/400)))
			}
			w.wantQuiet()
			budget := w.d.pool.Config().ContextBudget()
			asked := len(w.clerk().asked)
			for i, r := range m.Requests() {
				bare := prompt.TextSize(r.Messages[:1])
				most := max(budget*prompt.BytesPerToken, bare+turn.LeastHistory) * 101 / 100
				if prompt.TextSize(r.Messages) > most {
					t.Errorf("%d: request %d has %d bytes, want %d at most",
						window, i, prompt.TextSize(r.Messages), most)
				}
			}
			if asked > 25 {
				t.Errorf("%d: notes were asked for %d times for 40 messages", window, asked)
			}
		})
	}
}
