package e2e

import (
	"encoding/json"
	"testing"
)

// cacheTurns is the number of turns in TestPromptCache.
const cacheTurns = 20

// settledTurn is the first turn whose system prompt no longer asks for a style of answers.
const settledTurn = 4

// TestPromptCache measures how much of its prompts a provider can take from its cache in a
// conversation with tools. Each prompt must begin with the whole previous one, except the prompt
// of settledTurn. So only the text of people and tools is new.
func TestPromptCache(t *testing.T) {
	t.Parallel()
	l := newLongWorld(t, 1000, 128_000)
	for n := range cacheTurns {
		turn := l.script.next(n + 1)
		turn.n = n + 1
		turn.rounds = nil
		for round := range n % 4 { // none, one, two or three
			// The file comes last, so that the question comes after the remembered fact.
			turn.use([]string{"time", "remember", "read_file"}[round], []map[string]any{
				{}, {"key": turn.text[:20], "value": turn.say}, {"path": "plan.md"},
			}[round])
		}
		l.take(turn)
	}
	calls := l.model.calls
	sum := l.model.sum(func(longCall) bool { return true })
	later := l.model.sum(func(c longCall) bool { return c != calls[0] })
	report := struct {
		Turns    int     `json:"turns"`
		Calls    int     `json:"calls"`
		Cached   float64 `json:"cached"`             // share of all prompts
		Later    float64 `json:"cached_after_first"` // share of all prompts but the first
		Possible float64 `json:"possible"`           // share, if only new text was not cached
		Least    float64 `json:"least"`              // smallest share of a prompt after the first
		Prompt   [2]int  `json:"prompt_tokens"`      // tokens of the first and of the last prompt
	}{Turns: cacheTurns, Calls: len(calls), Least: 1,
		Cached: share(float64(sum.cached), float64(sum.prompt)),
		Later:  share(float64(later.cached), float64(later.prompt)),
		Prompt: [2]int{calls[0].prompt, calls[len(calls)-1].prompt}}
	possible := 0
	for i, c := range calls[1:] {
		possible += calls[i].prompt
		report.Least = min(report.Least, share(float64(c.cached), float64(c.prompt)))
		if !c.same && c.turn != settledTurn {
			t.Errorf("call %d, of turn %d, does not begin as the one before", i+2, c.turn)
		}
	}
	report.Possible = share(float64(possible), float64(later.prompt))
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	if report.Later < 0.95 {
		t.Errorf("%.1f %% can be cached, want 95 %% at least", 100*report.Later)
	}
}
