//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// A pricedModel is a model that starts four endless sub-agents. The usage of a call follows from
// the size of its prompt, as with a real model. Otherwise the gateway could not reserve enough for
// concurrent calls.
type pricedModel struct {
	*hold // blocks the second call of each sub-agent; reached when all four have made it

	mu     sync.Mutex
	asking int // number of second and later calls
	killed bool
	used   int // tokens of the turn and its sub-agents
	subs   map[string]int
}

// usageOf returns the usage of a call: one token for two bytes of text, and a short answer.
func usageOf(r openaitest.Request) *openaitest.Usage {
	size := 0
	for _, m := range r.Messages {
		size += len(m.Content)
		for _, c := range m.ToolCalls {
			size += len(c.Name) + len(c.Arguments)
		}
	}
	for _, t := range r.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return &openaitest.Usage{Prompt: size / 2, Completion: 10, Total: size/2 + 10}
}

func (s *pricedModel) answer(r openaitest.Request) openaitest.Reply {
	text := lastText(r)
	_, task, sub := strings.Cut(text, "count the roses of bed ")
	last := r.Messages[len(r.Messages)-1]
	sub = sub && !strings.Contains(text, "outcome of")
	if sub && last.Role == "tool" && !s.wait() {
		return say("nobody hears this")
	}
	reply := openaitest.Reply{Usage: usageOf(r)}
	switch {
	case sub:
		reply.ToolCalls = lookAround(r)
	case strings.Contains(text, "all roses"):
		s.direct(r, &reply)
	default: // a turn that reports an outcome has its own limit
		return say("That was one.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += reply.Usage.Total
	if sub {
		s.subs[task]++
	}
	return reply
}

// lookAround returns a tool call. Its arguments differ each time, so that the loop detector
// ignores it.
func lookAround(r openaitest.Request) []openaitest.ToolCall {
	return []openaitest.ToolCall{{ID: fmt.Sprint("call-", r.N), Name: "list_dir",
		Arguments: fmt.Sprintf(`{"path":"%d"}`, r.N)}}
}

// direct sets the reply for the turn that starts the sub-agents. This turn makes eight calls.
func (s *pricedModel) direct(r openaitest.Request, reply *openaitest.Reply) {
	results := 0
	for _, m := range r.Messages {
		if m.Role == "tool" {
			results++
		}
	}
	switch {
	case results < 6:
		reply.ToolCalls = lookAround(r)
	case results == 6:
		for bed := range 4 {
			reply.ToolCalls = append(reply.ToolCalls, openaitest.ToolCall{
				ID: fmt.Sprintf("call-%d-%d", r.N, bed), Name: "spawn",
				Arguments: fmt.Sprintf(`{"task":"count the roses of bed %d"}`, bed)})
		}
	default:
		reply.Text = []string{"They count."}
	}
}

// wait blocks a call until release and reports whether the process that made it still exists.
func (s *pricedModel) wait() bool {
	s.mu.Lock()
	before := !s.killed
	if s.asking++; s.asking == 4 {
		s.reach() // the usage so far is stored
	}
	s.mu.Unlock()
	<-s.released
	s.mu.Lock()
	defer s.mu.Unlock()
	return !before || !s.killed
}

// TestTurnBudget checks that the limit of a turn includes its sub-agents, even if another process
// continues them.
func TestTurnBudget(t *testing.T) {
	t.Parallel()
	s := &pricedModel{hold: newHold(), subs: make(map[string]int)}
	defer s.release()
	w := newWorld(t, worldOptions{answer: s.answer})
	// If each of the four sub-agents used a quarter of the limit, the eight calls of the turn
	// itself would exceed it.
	const limit, spare = 220_000, 20_000 // tokens; a call uses about 5,500
	w.configure(quiet + fmt.Sprintf("\n[budget]\nturn_tokens = %d\n", limit))
	p := w.start()
	w.telegram.Say(1, 1, "count all roses")
	until(t, "all sub-agents to ask again", s.reached)
	w.await("the answer", func() bool {
		return len(w.texts(1)) > 0 && strings.Contains(w.texts(1)[0], "They count.")
	})
	s.mu.Lock()
	s.killed = true
	s.mu.Unlock()
	p.kill()
	s.release()
	w.start()
	w.eventually("four outcomes", func(db *store.DB) bool {
		return w.count(db, "inbox WHERE message LIKE 'outcome:%' AND state = 'done'") == 4
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used > limit || s.used < limit-spare {
		t.Errorf("the turn and its sub-agents used %d tokens (calls by sub-agent: %v), "+
			"want nearly the %d of the limit", s.used, s.subs, limit)
	}
	if len(s.subs) != 4 {
		t.Errorf("calls by sub-agent: %v, want those of four", s.subs)
	}
}
