package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"gateway/agent/llm"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/skills"
	"gateway/store"
)

// Sizes of the prompts in the benchmarks: a person who has used the gateway for years, or a short
// time.
const (
	benchSkills = 200
	benchFacts  = 150
	longChat    = 20_000 // messages
	shortChat   = 200
)

// settled gives a world many skills and facts, and a chat, "0", with this number of messages.
func settled(b *testing.B, w *world, messages int) {
	b.Helper()
	old := time.Now().Add(-time.Hour)
	for i := range benchSkills {
		name := fmt.Sprintf("skill-%d", i)
		w.must(os.MkdirAll(filepath.Join(filepath.Dir(w.path), "skills", name), 0o700))
		file := "skills/" + name + "/SKILL.md"
		w.document(file, "---\nname: "+name+"\ndescription: What number "+
			fmt.Sprint(i)+" is for, and when to use it rather than another one.\n---\n\nDo it.\n")
		// Files that were written a moment ago are read again each time, because they may change again.
		w.must(os.Chtimes(filepath.Join(filepath.Dir(w.path), file), old, old))
		w.must(os.Chtimes(filepath.Join(filepath.Dir(w.path), filepath.Dir(file)), old, old))
	}
	w.must(os.Chtimes(filepath.Join(filepath.Dir(w.path), "skills"), old, old))
	w.document("AGENTS.md", strings.Repeat("How to work here. ", 100))
	root, err := os.OpenRoot(filepath.Dir(w.path))
	w.must(err)
	b.Cleanup(func() { w.must(root.Close()) })
	w.deps.Skills = skills.New(&skills.Options{Shared: root})
	scope := memory.OfChat(at("0"))
	for i := range benchFacts {
		w.remembers(scope, memory.Fact{Key: fmt.Sprint("thing ", i), Pinned: i%10 == 0,
			Value: fmt.Sprintf("has the number %d and stands in room %d", i*7, i%30)})
	}
	w.tools(act("look", tool.Pure, always("seen")), act("read_file", tool.Pure, always("text")))
	w.opts.ContextWindow = 64_000 // the list of skills alone has 15,000 tokens
	w.talked(messages)
}

// talked writes a conversation with this number of messages into the transcript.
func (w *world) talked(messages int) {
	key, now := session.KeyOf(at("0")), time.Now()
	w.tx(func(tx *store.Tx) error {
		for i := range messages / 2 {
			t := session.Turn{Session: key, Address: at("0"), Scope: memory.OfChat(at("0"))}
			_, err := session.BeginTurn(tx, &t, "", store.Lease{}, now,
				llm.Message{Role: llm.User, Text: stamp + fmt.Sprintf("Question %d, about thing %d. %s",
					i, i%benchFacts, strings.Repeat("It goes on. ", i%20))})
			if err == nil {
				err = session.EndTurn(tx, &t, session.Done, now, llm.Message{
					Role: llm.Assistant, Text: "An answer." + strings.Repeat(" More of it.", i%40)})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkTurnAfter measures a whole turn, from the inbox to the outbox, in a chat with a short
// and with a long transcript.
func BenchmarkTurnAfter(b *testing.B) {
	took := make(map[int]time.Duration)
	for _, messages := range []int{shortChat, longChat} {
		b.Run(fmt.Sprint("messages=", messages), func(b *testing.B) {
			bench := newLongBench(b, messages)
			b.ReportAllocs()
			for b.Loop() {
				bench.turn(b, at("0"))
			}
			took[messages] = b.Elapsed() / time.Duration(b.N)
		})
	}
	b.Logf("long to short: %.2f", float64(took[longChat])/float64(max(took[shortChat], 1)))
}

// newLongBench starts a dispatcher with a settled chat and a model that answers at once.
func newLongBench(b *testing.B, messages int) *bench {
	w := newWorld(b)
	settled(b, w, messages)
	w.deps.Model = instant{}
	bench := &bench{w: w, done: map[bus.Address]chan struct{}{at("0"): make(chan struct{}, 1)}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	w.live()
	go func() { ended <- NewDispatcher(w.deps, &w.opts).Run(ctx) }()
	go func() { ended <- bench.deliver(ctx) }()
	b.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				b.Error(err)
			}
		}
	})
	for range 5 { // messages that do not fit into a prompt become notes
		bench.turn(b, at("0"))
	}
	return bench
}

// A realisticModel answers, calls a tool now and then, and counts tokens as providers do: not in
// proportion to bytes, and differently for different texts.
type realisticModel struct {
	w      *world
	calls  int
	errors []float64 // of the estimate for each prompt, relative to its tokens
}

// tokenCount counts words by their length, signs in pairs, and each character that is not Latin
// as one token.
func tokenCount(s string) (n int) {
	run, signs := 0, 0
	for _, r := range s {
		switch {
		case r < 0x250 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			if run%6 == 0 {
				n++
			}
			run, signs = run+1, 0
		case r < utf8.RuneSelf:
			if r > ' ' && signs%2 == 0 {
				n++
			}
			run, signs = 0, signs+1
		default:
			n, run = n+1, 0
		}
	}
	return n
}

func (h *realisticModel) Stream(_ context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	tokens := 0
	for _, m := range r.Messages {
		tokens += 4 + tokenCount(m.Text)
		for _, c := range m.ToolCalls {
			tokens += 8 + tokenCount(c.Arguments)
		}
	}
	for _, t := range r.Tools {
		tokens += 8 + tokenCount(t.Name+t.Description+string(t.Schema))
	}
	estimate := h.w.d.env.Calls.Estimates.Tokens("m", prompt.Size(r))
	h.errors = append(h.errors, math.Abs(float64(estimate-tokens))/float64(tokens))
	h.calls++
	m := llm.Message{Role: llm.Assistant, Text: strings.Repeat("Well said, and so. ", h.calls%30)}
	finish := llm.FinishStop
	if len(r.Tools) > 0 && r.Messages[len(r.Messages)-1].Role == llm.User && h.calls%3 == 0 {
		m.ToolCalls = []llm.ToolCall{{ID: fmt.Sprint("c", h.calls), Name: "look", Arguments: "{}"}}
		finish = llm.FinishToolCalls
	}
	return func(yield func(llm.Event, error) bool) {
		yield(llm.Event{Response: &llm.Response{Message: m, Finish: finish, Model: "m",
			Usage: llm.Usage{Input: tokens, Output: tokenCount(m.Text)}}}, nil)
	}
}

// TestEstimate measures the error of the estimated prompt size in a conversation that changes its
// language and is compacted many times by the same model. The mean error must be at most 10 %,
// and the largest one at most 60 %.
func TestEstimate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		h := &realisticModel{w: w}
		w.deps.Model, w.deps.Notes = h, h
		w.opts.ModelID, w.opts.NotesID = "m", "m"
		w.opts.ContextWindow, w.opts.MaxOutput = 16_000, 2048
		rows := strings.Repeat(`{"id": 17, "name": "oak"}`+"\n", 50)
		table := act("look", tool.Pure, always(rows))
		table.Description = strings.Repeat("Looks something up when that is needed. ", 100)
		w.tools(table)
		w.start()
		said := []string{"The weather was fine, and we walked along the river until dinner. ",
			"Gestern Abend haben wir über die Heizung und die Versicherung gesprochen. ",
			"昨天我们去了公园，孩子们很高兴。",
			"func main() { fmt.Println(x[i:j], err != nil) }\n"}
		const turns = 400
		for i := range turns {
			w.say("a", fmt.Sprint(i, strings.Repeat(said[i/25%len(said)], 1+i%12)))
		}
		const warm = 3 // calls before the estimate has learned something
		mean, most := 0.0, 0.0
		for _, e := range h.errors[warm:] {
			mean += e / float64(len(h.errors)-warm)
			most = max(most, e)
		}
		percent := func(x float64) float64 { return math.Round(x*1000) / 10 }
		text, err := json.Marshal(map[string]any{"turns": turns, "calls": h.calls,
			"estimate_error_mean_percent": percent(mean),
			"estimate_error_max_percent":  percent(most),
			"estimate_error_first":        percent(h.errors[0])})
		w.must(err)
		t.Logf("%s", text)
		if mean > 0.1 || most > 0.6 {
			t.Errorf("the estimate is wrong by %.1f %%, at most by %.1f %%", mean*100, most*100)
		}
	})
}
