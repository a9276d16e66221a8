package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/memory"
	"gateway/store"
)

var longTurns = flag.Int("long.turns", 300, "turns of the long conversation, 200 at least")

// longWindow is the context window of the test in tokens. It is small, so that there are many
// summaries.
const longWindow = 16_000

// A longWorld is a gateway with one person.
type longWorld struct {
	*world
	model  *longModel
	script *longScript
	turns  int // number of turns so far
}

func newLongWorld(t *testing.T, turns, window int) *longWorld {
	l := &longWorld{model: newLongModel(t, window), script: newLongScript(turns)}
	l.world = newWorld(t, worldOptions{answer: l.model.answer})
	l.config = strings.Replace(l.config, "[models.fake]\n", fmt.Sprintf(
		"[memory]\ndream_every = \"0s\"\n[models.fake]\ncontext_window = %d\n", window), 1)
	l.configure(quiet + "\nowners = [\"1\"]")
	workspace := filepath.Join(l.home, "workspace")
	if err := os.MkdirAll(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range longFiles {
		if err := os.WriteFile(filepath.Join(workspace, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.run()
	return l
}

// take makes the person write and waits for the answer.
func (l *longWorld) take(turn longTurn) {
	l.t.Helper()
	l.turns++
	turn.n = l.turns
	l.model.begin(turn)
	l.say(turn.text)
}

// say writes a text and waits for the answer.
func (l *longWorld) say(text string) {
	l.t.Helper()
	before := l.telegram.SentCount(1)
	l.telegram.Say(1, 1, text)
	l.await("the answer to "+text, func() bool { return l.telegram.SentCount(1) > before })
}

// talk plays the whole conversation. The person starts Dream every 50 turns.
func (l *longWorld) talk(turns int) {
	l.t.Helper()
	const day = 50
	for n := range turns {
		l.take(l.script.next(n + 1))
		if (n+1)%day == 0 {
			l.say("/dream")
		}
	}
}

// longYears is the age of the conversation when the person asks for facts.
const longYears = 2 * 365 * 24 * time.Hour

// age makes all messages, notes and facts older: the first one by two years, later ones
// proportionally less.
func (l *longWorld) age(began time.Time) {
	now := time.Now()
	factor := float64(longYears) / float64(now.Sub(began))
	l.look(func(db *store.DB) {
		err := db.Tx(l.t.Context(), func(tx *store.Tx) error {
			for _, column := range [][2]string{{"memory_facts", "created_ms"},
				{"memory_facts", "used_ms"}, {"memory_entries", "time_ms"},
				{"memory_messages", "time_ms"}} {
				_, err := tx.Exec("UPDATE "+column[0]+" SET "+column[1]+" = CAST($1 - ($1 - "+
					column[1]+") * $2 AS INTEGER)", now.UnixMilli(), factor)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			l.t.Fatal(err)
		}
	})
}

// A recallReport contains the shares of facts that were found, from 0 to 1. The person had either
// asked the model to remember a fact, or only said it.
type recallReport struct {
	Injected        float64 `json:"injected"`                // remembered: in the prompt
	Recall          float64 `json:"recall_at_5"`             // remembered: by recall
	History         float64 `json:"history_at_5"`            // only said: by history_search
	RecallSaid      float64 `json:"recall_said_at_5"`        // only said: by recall, in notes
	HistoryRemember float64 `json:"history_remembered_at_5"` // remembered: by history_search
	missed          []string
}

// askAll asks for all planted facts.
func (l *longWorld) askAll() (r recallReport) {
	l.t.Helper()
	remembered, said := 0.0, 0.0
	for _, f := range longFacts {
		if f.key == "" {
			said++
			continue
		}
		remembered++
		l.take(longTurn{text: f.asks, say: "Let me think about that."})
		if l.inPrompt(f) {
			r.Injected++
		} else {
			r.missed = append(r.missed, "injection: "+f.asks)
		}
	}
	for _, f := range longFacts {
		byRecall, byHistory := l.find(f)
		if f.key == "" {
			r.RecallSaid += byRecall
			r.History += byHistory
		} else {
			r.Recall += byRecall
			r.HistoryRemember += byHistory
		}
		if f.key == "" && byHistory == 0 || f.key != "" && byRecall == 0 {
			r.missed = append(r.missed, "search: "+f.query)
		}
	}
	r.Injected, r.Recall = share(r.Injected, remembered), share(r.Recall, remembered)
	r.HistoryRemember = share(r.HistoryRemember, remembered)
	r.History, r.RecallSaid = share(r.History, said), share(r.RecallSaid, said)
	return r
}

// share returns n of all, rounded for a report.
func share(n, all float64) float64 { return math.Round(n/all*1000) / 1000 }

// inPrompt reports whether the newest prompt contains a remembered fact, recalled or pinned.
func (l *longWorld) inPrompt(f longFact) bool {
	line := memory.Fact{Key: f.key, Value: f.value}.String()
	messages := l.model.asked.Messages
	_, pinned, _ := strings.Cut(messages[0].Content, "## Pinned facts")
	if strings.Contains(pinned, line) {
		return true
	}
	for _, m := range messages {
		_, block, ok := strings.Cut(m.Content, "[what you remember, for this message]")
		if m.Role == "user" && ok && strings.Contains(block, line) {
			return true
		}
	}
	return false
}

// find searches for a fact with both tools. A result is 1 if one of the first five hits contains
// it.
func (l *longWorld) find(f longFact) (byRecall, byHistory float64) {
	l.t.Helper()
	turn := longTurn{n: l.turns + 1, text: "Please look that up.", say: "I have looked."}
	for _, tool := range []string{"recall", "history_search"} {
		turn.use(tool, map[string]any{"query": f.query, "limit": 5})
	}
	l.take(turn)
	var results []float64
	for _, m := range l.model.asked.Messages {
		if !strings.HasPrefix(m.ToolCallID, "call_"+strconv.Itoa(l.turns)+"_") {
			continue
		}
		hits, hit := 0, 0.0
		for line := range strings.Lines(m.Content) {
			if strings.HasPrefix(line, "- ") {
				if hits++; hits <= 5 && strings.Contains(line, f.want) {
					hit = 1
				}
			}
		}
		results = append(results, hit)
	}
	if len(results) != 2 {
		l.t.Fatalf("%d results of two tools", len(results))
	}
	return results[0], results[1]
}

// A spendReport says how the tokens were used.
type spendReport struct {
	Turns       [3][2]int `json:"turn_tokens"`      // median and 95th percentile, in three parts
	Background  float64   `json:"background"`       // share of all tokens
	Notes       float64   `json:"background_notes"` // share of all tokens, for notes only
	Fresh       float64   `json:"background_fresh"` // share of the tokens that no cache has
	Cached      float64   `json:"cached"`           // share of the answers' prompts
	NotesPrompt int       `json:"notes_prompt"`     // tokens, median
	Compactions int       `json:"compactions"`      // number of calls for notes
	Dreams      int       `json:"dreams"`           // number of analyses
	Largest     int       `json:"largest_prompt"`   // tokens
	BytesToken  float64   `json:"bytes_per_token"`  // by the tokenizer, in the last prompt
}

// spent analyses the calls of the conversation.
func (l *longWorld) spent(turns int) (r spendReport) {
	m := l.model
	const part = 100 // turns
	for i, from := range []int{part, turns / 2, turns - part} {
		list := m.perTurn(from, from+part)
		r.Turns[i] = [2]int{list[len(list)/2], list[len(list)*95/100]}
	}
	all := m.sum(func(longCall) bool { return true })
	notes := m.sum(func(c longCall) bool { return c.kind == longNotes })
	dream := m.sum(func(c longCall) bool { return c.kind == longDream })
	answers := m.sum(func(c longCall) bool { return c.kind == longReply })
	total := func(c longCall) float64 { return float64(c.prompt + c.completion) }
	fresh := func(c longCall) float64 { return total(c) - float64(c.cached) }
	r.Background = share(total(notes)+total(dream), total(all))
	r.Notes = share(total(notes), total(all))
	r.Fresh = share(fresh(notes)+fresh(dream), fresh(all))
	r.Cached = share(float64(answers.cached), float64(answers.prompt))
	var noted []int
	for _, c := range m.calls {
		if r.Largest = max(r.Largest, c.prompt); c.kind == longNotes {
			noted = append(noted, c.prompt)
		}
	}
	slices.Sort(noted)
	r.Compactions = len(noted)
	if len(noted) > 0 {
		r.NotesPrompt = noted[len(noted)/2]
	}
	r.Dreams = m.dreams
	bytes, tokens := 0, 0
	for _, part := range m.newest[longReply] {
		bytes, tokens = bytes+len(part), tokens+m.tokens(part)
	}
	r.BytesToken = share(float64(bytes), float64(tokens))
	return r
}

// TestLongConversation plays a long conversation of one person in a small context window. The
// person tells facts, and asks for them long after they have left the prompt. The facts must be
// found, and late turns must cost as much as early ones.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	turns := *longTurns
	l := newLongWorld(t, turns, longWindow)
	began := time.Now()
	l.talk(turns)
	took := time.Since(began)
	spent := l.spent(turns)
	l.age(began)
	found := l.askAll()

	text, err := json.Marshal(struct {
		Turns int `json:"turns"`
		spendReport
		recallReport
		Ms int64 `json:"ms_per_turn"`
	}{turns, spent, found, took.Milliseconds() / int64(turns)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	for _, miss := range found.missed {
		t.Log("missed by " + miss)
	}
	for what, c := range map[string][2]float64{ // result and lower limit
		"injection": {found.Injected, 0.9}, "recall@5": {found.Recall, 0.9},
		"history@5": {found.History, 0.8}, "cached": {spent.Cached, 0.8},
	} {
		if c[0] < c[1] {
			t.Errorf("%s is %.3f, want %.2f at least", what, c[0], c[1])
		}
	}
	for i, late := range spent.Turns {
		early := spent.Turns[0]
		if late[0]*2 > early[0]*3 || late[1] > early[1]*2 {
			t.Errorf("turns take %d tokens in part %d, at the beginning %d", late, i, early)
		}
	}
	if spent.Background > 0.05 {
		t.Errorf("background work is %.1f %% of all tokens, want 5 %% at most",
			spent.Background*100)
	}
	if n := spent.Compactions; n < turns/100 || n > turns/3 {
		t.Errorf("%d compactions in %d turns, want many, and by far not as many", n, turns)
	}
}
