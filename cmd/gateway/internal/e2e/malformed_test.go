//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

// malformed lists tool calls that models make but that providers reject in a later request.
var malformed = map[string]openaitest.ToolCall{
	"dotted name":     {Name: "functions.time", Arguments: "{}"},
	"no name":         {Arguments: "{}"},
	"long name":       {Name: strings.Repeat("x", 100), Arguments: "{}"},
	"name with space": {Name: "read file", Arguments: "{}"},
	"name and more":   {Name: `time{"a":1}`, Arguments: "{}"},
	"odd id":          {ID: "call:0|fc_1.x", Name: "time", Arguments: "{}"},
	"long id":         {ID: strings.Repeat("i", 80), Name: "time", Arguments: "{}"},
	"cut arguments":   {Name: "time", Arguments: `{"path": `},
	"list":            {Name: "time", Arguments: "[]"},
	"null":            {Name: "time", Arguments: "null"},
	"no arguments":    {Name: "time"},
}

// TestMalformedCalls checks that a malformed tool call harms neither its own turn nor later
// turns. The fake provider validates the names, ids and arguments in the whole conversation. In
// each chat, the model makes a different mistake.
func TestMalformedCalls(t *testing.T) {
	t.Parallel()
	const first, second = "do something", "are you still there?"
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		last := r.Messages[len(r.Messages)-1]
		for name, call := range malformed {
			if last.Role == "user" && strings.Contains(last.Content, first+": "+name+".") {
				return openaitest.Reply{ToolCalls: []openaitest.ToolCall{call}}
			}
		}
		if last.Role == "tool" {
			return openaitest.Reply{Text: []string{"it came back: ", last.Content}}
		}
		return openaitest.Reply{Text: []string{"I am here"}}
	}})
	w.run()
	chat := int64(0)
	for name := range malformed {
		chat++
		t.Run(name, func(t *testing.T) {
			w.wantReply(chat, first+": "+name+".", "it came back: ")
			w.wantReply(chat, second, "I am here")
		})
	}
}

// TestAnswersThatShowNothing checks answers without visible text, which platforms reject as
// empty. People are told that there is no answer, and the outbox has no dead letters.
func TestAnswersThatShowNothing(t *testing.T) {
	t.Parallel()
	nothing := map[int64]string{
		1: "\x01\x02\x1f\x7f", 2: "\u200b", 3: "\ufeff\n\u2060", 4: "\u3164", 5: "\u0301",
	}
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		for _, m := range r.Messages {
			for chat, text := range nothing {
				if m.Role == "user" && strings.Contains(m.Content, fmt.Sprintf("question %d.", chat)) {
					return openaitest.Reply{Text: []string{text}}
				}
			}
		}
		return openaitest.Reply{Text: []string{"no question"}}
	}})
	w.run()
	for chat := range nothing { // the gateway asks the model several times, which takes seconds
		w.telegram.Say(chat, chat, fmt.Sprintf("question %d.", chat))
	}
	for chat := range nothing {
		w.await("what is said without an answer", func() bool {
			return heard(w, chat, "I have no answer to that, sorry.")
		})
	}
	w.look(func(db *store.DB) {
		if n := w.count(db, "outbox WHERE state = 'dead'"); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}
