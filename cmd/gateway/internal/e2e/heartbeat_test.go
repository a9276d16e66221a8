package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// TestHeartbeat checks that a heartbeat with the answer HEARTBEAT_OK, or without one, sends
// nothing. Other answers are sent.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	var beats atomic.Int64
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		last := r.Messages[len(r.Messages)-1].Content
		if !strings.Contains(last, "[heartbeat; nobody has written]") {
			return say("hi")
		}
		if !strings.Contains(last, "- [ ] water the plants") {
			t.Errorf("the heartbeat is asked %q", last)
		}
		switch beats.Add(1) {
		case 1:
			return say("HEARTBEAT_OK")
		case 2:
			return say("")
		case 3:
			return say("**HEARTBEAT_OK**")
		case 4:
			return say("The plants are dry.\n\nHEARTBEAT_OK")
		}
		return say("HEARTBEAT_OK")
	}, agent: "[heartbeat]\nevery = \"1m\""})
	w.addHeartbeat()
	p := w.start("GATEWAY_TIME_SCALE=60") // a minute is a second
	p.ready()
	w.eventually("six heartbeats", func(db *store.DB) bool {
		return w.count(db, "runs WHERE state = 'done'") >= 6 &&
			w.count(db, "outbox WHERE state <> 'sent'") == 0
	})
	p.kill()
	w.look(func(db *store.DB) {
		if n := w.count(db, "outbox"); n != 2 {
			t.Errorf("%d messages were sent, want the answer and what the fourth heartbeat has found", n)
		}
	})
	if got := w.texts(7); !slices.Equal(got, []string{"hi", "The plants are dry."}) {
		t.Errorf("people see %q", got)
	}
}

// TestHeartbeatOfAgent checks that heartbeats read the list that the agent writes on a person's
// request.
func TestHeartbeatOfAgent(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`You look at (\S+) from time to time`)
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		switch last := r.Messages[len(r.Messages)-1]; {
		case strings.Contains(last.Content, "[heartbeat; nobody has written]"):
			if !strings.Contains(last.Content, "- [ ] look at the plants") {
				t.Errorf("the heartbeat is asked %q", last.Content)
			}
			return say("The plants are dry.")
		case last.Role == "tool":
			return say("I will: " + last.Content)
		}
		path := named.FindStringSubmatch(r.Messages[0].Content)
		if path == nil {
			t.Errorf("the prompt names no list for the heartbeat: %s", r.Messages[0].Content)
			return say("I can't.")
		}
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{ID: "c1", Name: "write_file",
			Arguments: `{"path":"` + path[1] + `","content":"- [ ] look at the plants\n"}`}}}
	}, agent: "[heartbeat]\nevery = \"1m\""})
	w.telegram.Deliver(telegramtest.Message{User: 7, Text: "look at the plants every half hour"})
	p := w.start("GATEWAY_TIME_SCALE=60") // a minute is a second
	p.ready()
	w.eventually("a heartbeat", func(db *store.DB) bool {
		return w.count(db, "runs WHERE state = 'done'") >= 1 &&
			w.count(db, "outbox WHERE state <> 'sent'") == 0
	})
	p.kill()
	if got := w.texts(7); len(got) < 2 || got[1] != "The plants are dry." {
		t.Errorf("people see %q", got)
	}
	if _, err := os.Stat(filepath.Join(w.home, "shared", "HEARTBEAT.md")); !os.IsNotExist(err) {
		t.Errorf("there is a shared list that nobody reads: %v", err)
	}
}

// TestHeartbeatWhileHalted checks that no heartbeat or job begins while everything is halted, and
// that they go on afterwards.
func TestHeartbeatWhileHalted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if strings.Contains(r.Messages[len(r.Messages)-1].Content, "[heartbeat; nobody has written]") {
			return say("The plants are dry.")
		}
		return say("hi")
	}, agent: "[heartbeat]\nevery = \"1m\""})
	w.addHeartbeat()
	w.command("halt")
	p := w.start("GATEWAY_TIME_SCALE=60") // a minute is a second
	p.ready()
	w.eventually("a heartbeat that is overdue for several intervals", func(db *store.DB) bool {
		return w.count(db, "jobs WHERE next_ms > 0 AND next_ms < 1000 * (unixepoch() - 4)") == 1
	})
	w.look(func(db *store.DB) {
		if n := w.count(db, "runs"); n != 0 {
			t.Errorf("%d heartbeats have begun while everything is halted", n)
		}
	})
	w.command("resume")
	w.eventually("a heartbeat", func(db *store.DB) bool {
		return w.count(db, "runs WHERE state = 'done'") >= 1
	})
	p.kill()
}

// addHeartbeat makes a person write to a gateway, ends it, and gives the chat an open item for
// heartbeats.
func (w *world) addHeartbeat() {
	w.t.Helper()
	w.telegram.Deliver(telegramtest.Message{User: 7, Text: "hello"})
	p := w.start()
	p.ready()
	w.eventually("the answer", func(db *store.DB) bool {
		return w.count(db, "outbox WHERE state = 'sent'") == 1
	})
	p.kill()
	file := filepath.Join(w.home, "memory", "chat-telegram+7", "HEARTBEAT.md")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("- [ ] water the plants\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}
