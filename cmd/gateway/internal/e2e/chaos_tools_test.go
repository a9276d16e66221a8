//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/llm/openai/openaitest"
	"gateway/bus"
	"gateway/store"
)

// useTools returns random tool calls, or none. Each command adds a line of its own to a file. word
// is the secret word that the model has read.
func (c *chaos) useTools(r openaitest.Request, word string) (calls []openaitest.ToolCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.storm && c.rand.IntN(2) == 0 && len(calls) < 3 {
		call := openaitest.ToolCall{ID: fmt.Sprintf("call-%d-%d", r.N, len(calls)), Name: "exec"}
		switch c.rand.IntN(6) {
		case 0:
			call.Name, call.Arguments = "ask", `{"question":"Which?","options":["x","y"]}`
		case 1:
			call.Name = "spawn"
			call.Arguments = fmt.Sprintf(`{"task":"work on %s","wait":%t}`, word, c.rand.IntN(2) == 0)
		case 2:
			call.Name, call.Arguments = "time", "{}"
		default:
			c.lines = append(c.lines, word)
			call.Arguments = fmt.Sprintf(`{"command":"echo L%d >> %s && sleep 0.0%d && echo finished"}`,
				len(c.lines), counter, c.rand.IntN(9))
		}
		if r.HasTool(call.Name) {
			calls = append(calls, call)
		}
	}
	return calls
}

// An openQuestion is a question or a request for an approval that a turn waits for.
type openQuestion struct{ code, session string }

// questions returns the open questions.
func (c *chaos) questions(db *store.DB) (list []openQuestion) {
	var q openQuestion
	for range c.query(db, []any{&q.code, &q.session},
		"SELECT code, session FROM questions WHERE state = 'open' ORDER BY id") {
		list = append(list, q)
	}
	return list
}

// decide makes Ann decide a question with a command, in her direct chat on the same platform.
func (c *chaos) decide(q openQuestion, command string) {
	for _, chat := range c.chats {
		if chat.ann != nil && strings.HasPrefix(q.session, chat.at.Account+"/") {
			c.command(chat, 0, fmt.Sprintf(command, q.code))
		}
	}
}

// decideOne makes Ann decide a question, if there is one.
func (c *chaos) decideOne() {
	c.calmDisk()
	c.look(func(db *store.DB) {
		if list := c.questions(db); len(list) > 0 {
			commands := []string{"/approve %s", "/approve %s", "/deny %s", "/answer %s 1"}
			c.decide(list[c.n(len(list))], commands[c.n(len(commands))])
		}
	})
}

// decideAll ends all questions: everybody who may be asked writes something, and Ann denies.
func (c *chaos) decideAll(list []openQuestion) {
	for _, q := range list {
		c.decide(q, "/deny %s")
		for _, chat := range c.chats {
			at := chat.at.String()
			// Only a command reaches a session of its own, or that of a group before it has moved.
			if strings.HasPrefix(q.session, at+"#@") || chat.was != (bus.Address{}) &&
				strings.HasPrefix(q.session, chat.was.String()) {
				for author := range chat.say {
					c.command(chat, author, fmt.Sprintf("/answer %s 1", q.code))
				}
			}
			if q.session != at {
				continue
			}
			for author := range chat.say {
				c.speak(chat, author)
			}
		}
	}
}

// checkTools checks that each command has run at most once, and that its result is true. A /forget
// erases results.
func (c *chaos) checkTools(db *store.DB) {
	c.t.Helper()
	counts, results := c.counts(), c.results()
	unknown := 0
	for n, word := range c.lines {
		lost := slices.Contains(c.forgotten, word)
		line := fmt.Sprint("L", n+1)
		got, ran := results[line], counts[line]
		ok := slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "finished") })
		if ran > 1 || len(got) > 1 || len(got) == 0 && ran > 0 && !lost || ok && ran == 0 {
			c.t.Errorf("%s was run %d times and has the results %q", line, ran, got)
		}
		if !ok && ran > 0 {
			unknown++
		}
	}
	c.t.Logf("%d of %d commands have run, %d of them with an unknown outcome", len(counts),
		len(c.lines), unknown)
	var body []byte
	var session string
	open := make(map[string]string) // calls without a result, by session
	for range c.query(db, []any{&session, &body}, "SELECT session, body FROM messages ORDER BY id") {
		var m llm.Message
		if err := json.Unmarshal(body, &m); err != nil {
			c.t.Fatal(err)
		}
		for _, call := range m.ToolCalls {
			open[session+" "+call.ID] = call.Arguments
		}
		if m.Role == llm.ToolRole {
			delete(open, session+" "+m.ToolCallID)
		}
	}
	if len(open) > 0 {
		c.t.Errorf("tool calls without a result: %v", open)
	}
}
