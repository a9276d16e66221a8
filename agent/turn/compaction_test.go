package turn

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// entries returns the texts in the history of a direct chat.
func (w *world) entries(chat string) (texts []string) {
	w.t.Helper()
	list, err := w.env.Memory.In(memory.OfChat(at(chat))).Entries(w.read(), 0, 1000)
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

// For any conversation with tools, images and thoughts, the prompt fits and ends with the newest
// message. Removed messages are in the notes and can be found by a search. No message is deleted,
// and the start of the session never goes back.
func TestFitKeepsTheConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tools(act("look", tool.Pure, "seen"))
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		chat := strconv.Itoa(checks)
		w.settings.ContextWindow = rapid.IntRange(5000, 12_000).Draw(rt, "window")
		w.settings.MaxOutput = 1024
		w.env.Calls.Estimates = new(prompt.Estimator)
		w.env.Summarizer.Estimates = w.env.Calls.Estimates
		key, now := session.KeyOf(at(chat)), time.Now()
		plan, said := drawTurns(rt)
		var last *runner
		w.tx(func(tx *store.Tx) error { // one transaction for all turns, because it is faster
			for i, messages := range plan {
				last = w.turn(key)
				last.Session, last.Address, last.Scope = key, at(chat), memory.OfChat(at(chat))
				_, err := session.BeginTurn(tx, &last.Turn, "", store.Lease{}, now, messages[0])
				if err == nil && i < len(plan)-1 {
					err = session.EndTurn(tx, &last.Turn, session.Done, now, messages[1:]...)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		last.First = false // so that the transcript is read from the database, too
		before := w.count("SELECT count(*) FROM messages")
		start := int64(0)
		for range 3 { // fitting it again changes nothing
			if err := last.conv.restore(context.Background()); err != nil {
				rt.Fatal(err)
			}
			s := w.summary(chat)
			if s.Start < start {
				rt.Fatalf("the start goes back from %d to %d", start, s.Start)
			}
			start = s.Start
		}
		if got := w.count("SELECT count(*) FROM messages"); got != before {
			rt.Errorf("%d messages are left of %d", got, before)
		}
		checkFitted(rt, w, chat, last, said)
	})
}

// drawTurns returns the messages of random turns, and the text of the person in each turn.
func drawTurns(rt *rapid.T) (plan [][]llm.Message, said []string) {
	for i := range rapid.IntRange(1, 40).Draw(rt, "turns") {
		said = append(said, fmt.Sprintf("said %d.", i))
		first := llm.Message{Role: llm.User, Text: said[i] +
			strings.Repeat("x", rapid.IntRange(0, 3000).Draw(rt, "length"))}
		if rapid.IntRange(0, 9).Draw(rt, "image") == 0 {
			first.Images = []llm.Image{{Path: "media/a.png", Type: "image/png"}}
		}
		messages := []llm.Message{first}
		for r := range rapid.IntRange(0, 4).Draw(rt, "rounds") {
			call := intent("look")
			call.Reasoning = "hm"
			call.ToolCalls[0].ID = fmt.Sprintf("c%d.%d", i, r)
			size := rapid.IntRange(0, 6000).Draw(rt, "result")
			messages = append(messages, call, llm.Message{Role: llm.ToolRole,
				ToolCallID: call.ToolCalls[0].ID, Text: strings.Repeat("r", size)})
		}
		plan = append(plan, append(messages, llm.Message{Role: llm.Assistant, Text: "ok"}))
	}
	return plan, said
}

// checkFitted checks the request that a turn would send.
func checkFitted(rt *rapid.T, w *world, chat string, last *runner, said []string) {
	req := last.model.request(context.Background())
	if problem := llmtest.Problem(req.Messages); problem != "" {
		rt.Errorf("%s in %q", problem, lines(req.Messages[1:]))
	}
	size := w.env.Calls.Estimates.Tokens("", prompt.Size(req))
	if most := w.settings.ContextBudget(); size > most && len(req.Messages) > 2 {
		rt.Errorf("a prompt of %d tokens with %d messages, want %d at most",
			size, len(req.Messages), most)
	}
	if newest := req.Messages[len(req.Messages)-1]; !strings.Contains(newest.Text, said[len(said)-1]) {
		rt.Errorf("the newest message is %.80q, want the one with %q", newest.Text, said[len(said)-1])
	}
	prompt := strings.Join(lines(req.Messages), "\n")
	notes := strings.Join(w.entries(chat), "\n")
	for _, text := range said {
		if !strings.Contains(prompt, text) && !strings.Contains(notes, text) {
			rt.Errorf("%q is neither in the prompt nor in the notes", text)
		}
		if n := strings.Count(notes, text); n > 1 {
			rt.Errorf("%q is noted %d times", text, n)
		}
		hits, err := w.env.Memory.In(last.Scope).SearchHistory(w.read(),
			strings.TrimSuffix(text, "."), memory.HistoryOptions{Limit: 50})
		if err != nil {
			rt.Fatal(err)
		}
		if strings.Contains(notes, text) && len(hits) == 0 {
			rt.Errorf("%q can't be found", text)
		}
	}
}

// The size that a turn computes to fit its prompt is exactly the size of the request.
func TestSizeOfPrompt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := w.turn(bus.Session{})
	run.conv.system = "You are an assistant."
	run.conv.history = []llm.Message{{Role: llm.User, Text: "hello"},
		{Role: llm.Assistant, Text: "hi"}, {Role: llm.User, Text: "bye"}}
	got := run.conv.baseSize() + prompt.TextSize(run.conv.history)
	if want := prompt.Size(run.model.request(t.Context())); got != want {
		t.Errorf("the prompt is taken for %d bytes, and has %d", got, want)
	}
}
