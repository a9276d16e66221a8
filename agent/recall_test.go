package agent

import (
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/prompt"
	"gateway/memory"
	"gateway/session"
)

// A fact that was shown many messages ago may no longer be in the prompt, so it is shown again.
func TestFactsAreRepeated(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.ContextWindow, w.opts.MaxOutput = 8192, 1024
		m := w.atLength()
		me := memory.OfPerson(5)
		w.remembers(me, memory.Fact{Key: "coffee", Value: "drinks it black"})
		w.start()
		for i, test := range []struct {
			text string
			want bool
		}{
			{"How do I like my coffee?", true},
			{"Coffee again, please", false}, // the fact is still in sight
			{"Something else", false}, {"And more", false}, {"Much more", false}, {"Still", false},
			{"Coffee once more", true},
		} {
			w.put(person(w.message("a", test.text), 5))
			if got := newestText(m, i); strings.Contains(got, "drinks it black") != test.want {
				t.Errorf("the model sees %q, the fact in it: want %v", got, test.want)
			}
		}
	})
}

func TestWithoutRecalled(t *testing.T) {
	t.Parallel()
	const (
		skill = "\n\n[the skill tea, named by the user]\nBoil water.\n\nWait.\n[end of the skill]"
		known = "\n\n[what you remember, for this message]\n- tea: green\n" +
			"[end of what you remember]"
	)
	for _, test := range []struct {
		role       llm.Role
		text, want string
	}{
		{llm.User, "make $tea", "make $tea"},
		{llm.User, "make $tea" + skill, "make $tea"},
		{llm.User, "make $tea $tea" + skill + skill + known, "make $tea $tea"},
		{llm.User, "1. tea\n2. two" + known + "\n\nand more", "1. tea\n2. two\n\nand more"},
		{llm.User, prompt.Escape("tea" + known), prompt.Escape("tea" + known)}, // a person wrote it
		{llm.Assistant, "It reads" + known, "It reads" + known},
	} {
		list := []session.Entry{{Message: llm.Message{Role: test.role, Text: test.text}}}
		if got := prompt.WithoutRecalled(list)[0].Message.Text; got != test.want {
			t.Errorf("of %q was said %q, want %q", test.text, got, test.want)
		}
		if list[0].Message.Text != test.text {
			t.Errorf("the transcript has changed")
		}
	}
}

// Facts that were shown with a message do not become part of the archived message or of the
// notes.
func TestNotesHaveOnlyWhatWasSaid(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		m := llmtest.Func("ok", func(llm.Request) llmtest.Step { return llmtest.Say("ok") })
		w.deps.Model = m
		me := memory.OfPerson(5)
		w.remembers(me, memory.Fact{Key: "locker", Value: "its code is K-4711"})
		w.start()
		w.put(person(w.message("a", "What about the locker?"), 5))
		if got := newestText(m, 0); !strings.Contains(got, "K-4711") {
			t.Fatalf("the model sees %q, without the fact", got)
		}
		w.put(person(w.message("a", "/new"), 5))
		w.sleep(time.Minute)
		space := w.deps.Memory.In(me)
		for query, want := range map[string]int{"K-4711": 0, "locker": 1} {
			hits, err := space.SearchHistory(w.read(), query, memory.HistoryOptions{})
			w.must(err)
			archived := 0
			for _, h := range hits {
				if h.Kind == memory.KindMessage && h.Speaker == "user" {
					archived++
				}
			}
			if archived != want {
				t.Errorf("%d messages of the user are found by %q, want %d: %+v",
					archived, query, want, hits)
			}
		}
		entries, err := space.Entries(w.read(), 0, 10)
		w.must(err)
		for _, e := range entries {
			if strings.Contains(e.Text, "K-4711") {
				t.Errorf("noted is %q", e.Text)
			}
		}
	})
}
