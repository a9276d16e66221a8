package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/prompt"
	"gateway/agent/turn"
	"gateway/memory"
	"gateway/session"
)

// entries returns the texts of the notes of a direct chat.
func (w *world) entries(chat string) (texts []string) {
	w.t.Helper()
	list, err := w.deps.Memory.In(memory.OfChat(at(chat))).Entries(w.read(), 0, 1000)
	w.must(err)
	for _, e := range list {
		texts = append(texts, e.Text)
	}
	return texts
}

func (w *world) summary(chat string) session.Summary {
	w.t.Helper()
	s, err := session.ReadSummary(w.read(), session.KeyOf(at(chat)))
	w.must(err)
	return s
}

// notesModel returns the model that makes notes.
func (w *world) clerk() *notesModel { return w.deps.Notes.(*notesModel) }

// talks says n things in a chat, numbered from first.
func (w *world) talks(chat string, first, n int) {
	for i := range n {
		w.say(chat, fmt.Sprintf("thing %d", first+i))
	}
}

// atLength gives the world a model whose answers are long, and returns it.
func (w *world) atLength() *llmtest.Model {
	m := llmtest.Func("long", func(r llm.Request) llmtest.Step {
		said := strings.TrimPrefix(r.Messages[len(r.Messages)-1].Text, stamp)
		return llmtest.Say("Answer to " + said + "." + strings.Repeat(" more words", 60))
	})
	w.deps.Model = checked{m, w.t}
	return m
}

// After a turn that has made its conversation too long, the older part becomes notes. The prompt
// of the next turn contains these notes and the earlier ones.
func TestCompactionAfterATurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		m := w.atLength()
		w.opts.ContextWindow, w.opts.MaxOutput = 8192, 1024
		w.start()
		w.talks("a", 0, 70)
		w.wantQuiet()
		notes := w.entries("a")
		if len(notes) < 3 {
			t.Fatalf("there are %d notes, want some", len(notes))
		}
		all := strings.Join(notes, "\n")
		for i := range 40 {
			if n := strings.Count(all, fmt.Sprintf("thing %d\n", i)); n != 1 {
				t.Errorf("thing %d is noted %d times, want once", i, n)
			}
		}
		requests := m.Requests()
		last := requests[len(requests)-1]
		system := last.Messages[0].Text
		_, summary, ok := strings.Cut(system, "[Archived Context Summary]")
		if !ok || !strings.Contains(summary, "thing 0\n") || !strings.Contains(summary, "[notes 1, ") {
			t.Errorf("the summary is\n%s", summary)
		}
		if strings.Contains(system, "# Recent History") {
			t.Error("what is in the summary is in the recent history as well")
		}
		if len(last.Messages) > 50 {
			t.Errorf("the last prompt has %d messages", len(last.Messages))
		}
	})
}

// What a model has thought counts as a part of its answer, but does not fill the next prompt.
func TestNoCompactionForThoughts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		m := llmtest.Func("thinker", func(llm.Request) llmtest.Step {
			step := llmtest.Say("fine")
			step.Usage = llm.Usage{Input: 900, Output: 6000}
			return step
		})
		w.deps.Model = checked{m, w.t}
		w.opts.ContextWindow, w.opts.MaxOutput = 8192, 1024
		w.start()
		w.talks("a", 0, 10)
		w.wantQuiet()
		if notes := w.entries("a"); len(notes) > 0 {
			t.Errorf("a short conversation has become notes: %q", notes)
		}
	})
}

// Pitfall: "messages that arrive while a summary is written are cut off with it".
func TestMessagesDuringCompaction(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		w.talks("a", 0, 10)
		release := make(chan struct{})
		w.clerk().set(func(c *notesModel) { c.hold = release })
		w.say("a", "/compact")
		w.talks("a", 10, 3)
		close(release)
		w.wantQuiet()
		all := strings.Join(w.entries("a"), "\n")
		if strings.Contains(all, "thing 10") || !strings.Contains(all, "thing 0\n") {
			t.Errorf("the notes are\n%s", all)
		}
		w.say("a", "and now")
		requests := w.deps.Model.(checked).Model.(*llmtest.Model).Requests()
		sent := strings.Join(lines(requests[len(requests)-1].Messages[1:]), "\n")
		for i := 10; i < 13; i++ {
			if !strings.Contains(sent, fmt.Sprintf("thing %d", i)) {
				t.Errorf("thing %d is gone from the prompt", i)
			}
		}
	})
}

// A conversation that nobody uses for a while becomes notes once, except for its last messages.
func TestIdle(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		m := w.atLength()
		w.opts.IdleAfter = 30 * time.Minute
		w.start()
		w.talks("a", 0, 10)
		w.sleep(29 * time.Minute)
		if n := len(w.entries("a")); n != 0 {
			t.Fatalf("there are %d notes too early", n)
		}
		w.sleep(5 * time.Minute)
		if n := len(w.entries("a")); n != 1 {
			t.Fatalf("there are %d notes, want 1", n)
		}
		w.sleep(5 * time.Hour)
		w.say("a", "hello again")
		if n := len(w.clerk().asked); n != 1 {
			t.Errorf("notes were asked for %d times, want once", n)
		}
		requests := m.Requests()
		sent := requests[len(requests)-1].Messages
		if got, want := len(sent), 1+8+1; got != want {
			t.Errorf("the prompt has %d messages, want %d", got, want)
		}
	})
}

// /new begins a new conversation at once. The old one becomes notes in the background, even if
// the process ends or the model fails in the meantime. If the model refuses three times, or does
// not work for a day, the messages themselves are stored instead of notes.
func TestNewMakesNotes(t *testing.T) {
	t.Parallel()
	const beginnings = "[No notes could be made of this part of the conversation. Its messages " +
		"begin:]\n- 2000-01-01, user: " + stamp + "thing 0\n"
	for _, test := range []struct {
		name string
		do   func(w *world)
		want string
	}{
		{"at once", func(w *world) { w.say("a", "/new") }, "thing 0\n"},
		{"after a restart", func(w *world) {
			w.clerk().set(func(c *notesModel) { c.hold = make(chan struct{}) })
			w.say("a", "/new")
			w.must(w.stop())
			w.clerk().set(func(c *notesModel) { c.hold = nil })
			w.start()
		}, "thing 0\n"},
		{"after two failures", func(w *world) {
			w.clerk().set(func(c *notesModel) { c.fail = &llm.Error{Kind: llm.Overloaded} })
			w.say("a", "/new")
			w.sleep(90 * time.Second)
			w.clerk().set(func(c *notesModel) { c.fail = nil })
		}, "- 2000-01-01: " + stamp + "thing 0\n"},
		{"after an outage of a night", func(w *world) {
			w.clerk().set(func(c *notesModel) { c.fail = &llm.Error{Kind: llm.Unavailable} })
			w.say("a", "/new")
			w.sleep(10 * time.Hour)
			w.clerk().set(func(c *notesModel) { c.fail = nil })
			w.sleep(time.Hour)
		}, "- 2000-01-01: " + stamp + "thing 0\n"},
		{"with a model that refuses", func(w *world) {
			w.clerk().set(func(c *notesModel) { c.fail = &llm.Error{Kind: llm.ContentRefused} })
			w.say("a", "/new")
		}, beginnings},
		{"with a model that never works", func(w *world) {
			w.clerk().set(func(c *notesModel) { c.fail = &llm.Error{Kind: llm.Unauthorized} })
			w.say("a", "/new")
			w.sleep(24 * time.Hour)
		}, beginnings},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.atLength()
				w.start()
				w.talks("a", 0, 4)
				test.do(w)
				w.sleep(10 * time.Minute)
				w.say("a", "afresh")
				w.wantQuiet()
				notes := w.entries("a")
				if len(notes) != 1 || !strings.Contains(notes[0], test.want) {
					t.Errorf("the notes are %q, want one with %q", notes, test.want)
				}
				requests := m.Requests()
				last := requests[len(requests)-1].Messages
				if len(last) != 2 || w.summary("a").Text != "" {
					t.Errorf("the new conversation begins with %d messages and the summary %q",
						len(last), w.summary("a").Text)
				}
				_, recent, ok := strings.Cut(last[0].Text, "# Recent History")
				if !ok || !strings.Contains(recent, "thing 3") {
					t.Error("the prompt does not hold the notes of the conversation before")
				}
			})
		})
	}
}

// /compact says what it has done, or that there is nothing to do.
func TestCompactCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		w.say("a", "/compact")
		w.talks("a", 0, 8)
		w.say("a", "/compact")
		w.say("a", "/compact")
		w.wantQuiet()
		var told []string
		for _, m := range w.outbox("a") {
			if !strings.HasPrefix(m.Text, "Answer") {
				told = append(told, m.Text)
			}
		}
		const nothing = "There is nothing to compact: this conversation is short."
		want := []string{nothing, "I have made notes of 8 older messages, which take their place. I " +
			"can still search the messages.", nothing}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// During a halt no notes are made. They are made after /resume, so nothing is lost.
func TestNoNotesWithoutBudget(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		w.talks("a", 0, 8)
		w.say("b", "/halt")
		w.say("a", "/compact")
		w.sleep(3 * time.Hour)
		if n := len(w.clerk().asked); n != 0 || len(w.entries("a")) != 0 {
			t.Errorf("%d notes were asked for during a halt", n)
		}
		w.say("b", "/resume")
		w.sleep(time.Hour)
		if n := len(w.entries("a")); n != 1 {
			t.Errorf("there are %d notes after the halt, want 1", n)
		}
	})
}

// The estimated tokens of a prompt come within 3 % of the model's own count. The learned number
// of bytes per token stays between prompt.LeastRatio and prompt.MostRatio.
func TestEstimateLearns(t *testing.T) {
	t.Parallel()
	for _, ratio := range []float64{1.2, 2.1, 3.9, 5.2, 9} {
		var e prompt.Estimator
		if got := e.Tokens("m", 3000); got != 1000 {
			t.Errorf("at first 3,000 bytes are %d tokens, want 1,000", got)
		}
		e.Learn("m", 100, 1) // too small to learn from
		for range 20 {
			e.Learn("m", 30_000, int(30_000/ratio))
		}
		bounded := min(max(ratio, prompt.LeastRatio), prompt.MostRatio)
		want := 30_000 / bounded
		if got := float64(e.Tokens("m", 30_000)); got < want*0.97 || got > want*1.03 {
			t.Errorf("with %s bytes a token 30,000 bytes are taken for %.0f tokens, want %.0f",
				strconv.FormatFloat(ratio, 'g', -1, 64), got, want)
		}
		if got := e.Tokens("other", 3000); got != 1000 {
			t.Errorf("another model has learnt, too: %d tokens", got)
		}
		e.Exceeded("m", 1000, 1600)
		if got := e.Tokens("m", 1600); got < 1000 {
			t.Errorf("1,600 bytes did not fit into 1,000 tokens and are taken for %d", got)
		}
	}
}

// Some providers refuse a request because of something in an earlier message, with an error or an
// empty answer. The agent then answers without the earlier messages, and notes replace them.
func TestRefusedHistory(t *testing.T) {
	t.Parallel()
	empty := llmtest.Say("")
	empty.Finish = llm.FinishFiltered
	for name, refusal := range map[string]llmtest.Step{
		"error": llmtest.Fail(llm.ContentRefused), "empty answer": empty,
	} {
		t.Run(name, func(t *testing.T) { testRefusedHistory(t, refusal) })
	}
}

func testRefusedHistory(t *testing.T, refusal llmtest.Step) {
	inWorld(t, func(w *world) {
		m := llmtest.Func("filtered", func(r llm.Request) llmtest.Step {
			if strings.Contains(strings.Join(lines(r.Messages), "\n"), "bad word") {
				return refusal
			}
			return llmtest.Say("fine")
		})
		w.deps.Model = checked{m, t}
		w.deps.Notes = llmtest.Func("notes", func(llm.Request) llmtest.Step {
			return llmtest.Say("- They talked.")
		})
		w.start()
		w.say("a", "hello", "a bad word", "sorry")
		w.sleep(10 * time.Minute)
		asked := len(m.Requests())
		w.say("a", "and on")
		w.wantQuiet()
		refused := turn.ErrorText(&llm.Error{Kind: llm.ContentRefused})
		w.wantAnswers("a", "fine", refused, "fine", "fine")
		if n := len(m.Requests()); n != asked+1 {
			t.Errorf("the last message took %d requests, want 1", n-asked)
		}
	})
}
