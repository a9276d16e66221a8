package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/store"
)

// counter is a file to which commands append lines. Each line may be there only once.
const counter = "counter"

// counts returns the number of occurrences of each line in the counter.
func (w *world) counts() map[string]int {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.home, "workspace", counter))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	lines := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		lines[strings.TrimSpace(line)]++
	}
	return lines
}

// results returns, by line, the results of the commands that append that line.
func (w *world) results() map[string][]string {
	w.t.Helper()
	results := make(map[string][]string)
	w.look(func(db *store.DB) {
		calls := make(map[string]string) // line by session and call
		var key string
		var body []byte
		for range w.query(db, []any{&key, &body}, "SELECT session, body FROM messages ORDER BY id") {
			var m llm.Message
			if err := json.Unmarshal(body, &m); err != nil {
				w.t.Fatal(err)
			}
			for _, c := range m.ToolCalls {
				_, rest, _ := strings.Cut(c.Arguments, "echo ")
				line, _, _ := strings.Cut(rest, " ")
				calls[key+c.ID] = line
			}
			if m.Role == llm.ToolRole {
				line := calls[key+m.ToolCallID]
				results[line] = append(results[line], m.Text)
			}
		}
	})
	return results
}

// order writes a message that orders a command to append a line.
func (w *world) order(chat int64, line string) {
	w.telegram.Say(chat, chat, fmt.Sprintf(
		`DO exec {"command":"echo %s >> %s; sleep 0.0%d"}`, line, counter, rand.IntN(9)))
}

// TestKillTools checks that no command runs twice. The result of a command that a kill
// interrupted is that its outcome is unknown.
func TestKillTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders, sandbox: "auto",
		agent: "queue_mode = \"followup\"\nwaiting = 1000"}) // a busy machine is slow
	const chats = 4
	said := make(map[string]int64)
	tired := false
	for round := range often(10) {
		p := w.start()
		p.ready()
		if tired { // one more kill could make a turn give up, which this test does not check
			w.allAnswered()
		}
		for chat := range int64(chats) {
			line := fmt.Sprintf("c%d-%d", chat+1, round)
			said[line] = chat + 1
			w.order(chat+1, line)
		}
		w.received()
		timer := time.NewTimer(time.Duration(20+rand.IntN(400)) * time.Millisecond)
		select {
		case <-timer.C:
		case <-p.done:
			t.Fatalf("the gateway has ended by itself\n%s", p.newest())
		}
		p.kill()
		w.look(func(db *store.DB) { tired = w.isTired(db) })
	}
	p := w.start()
	p.ready()
	w.allAnswered()
	p.kill()
	w.checkCommands(said)
}

// allAnswered waits until all messages are answered.
func (w *world) allAnswered() {
	w.t.Helper()
	w.eventually("an answer to everything", func(db *store.DB) bool {
		return w.count(db, "inbox WHERE state <> 'done'") == 0 &&
			w.count(db, "outbox WHERE state <> 'sent'") == 0
	})
}

// isTired reports whether one more kill could make the gateway give up a turn, or a message that
// was pending at several crashes. Only the next process counts the last kill.
func (w *world) isTired(db *store.DB) bool {
	return w.count(db, "turns WHERE state = 'running' AND attempts >= 3") > 0 ||
		w.count(db, "outbox WHERE state IN ('waiting', 'sending') AND crashes > 0") > 0 ||
		w.count(db, "inbox WHERE state = 'waiting' AND crashes > 0") > 0
}

// relieve lets a process finish all work if one more kill could make the gateway give something
// up. Tests of kills don't check giving up.
func (w *world) relieve(env ...string) {
	w.t.Helper()
	tired := false
	w.look(func(db *store.DB) { tired = w.isTired(db) })
	if !tired {
		return
	}
	p := w.start(env...)
	p.ready()
	w.rest() // a person may see an answer before the gateway has recorded it
	p.kill()
}

// checkCommands checks that each command has run at most once, and that its result is correct.
func (w *world) checkCommands(said map[string]int64) {
	w.t.Helper()
	counts, results := w.counts(), w.results()
	unknown := 0
	for line, chat := range said {
		switch n := counts[line]; {
		case n > 1:
			w.t.Errorf("%s was run %d times", line, n)
		case len(results[line]) != 1:
			w.t.Errorf("%s has the results %q, want one", line, results[line])
		case strings.Contains(results[line][0], "its outcome is unknown"):
			unknown++
		case n == 0:
			w.t.Errorf("%s in chat %d was not run, and its result is %q", line, chat, results[line][0])
		}
	}
	w.t.Logf("%d commands, %d of them with an unknown outcome", len(said), unknown)
}

// TestKillApproval checks that an approval allows one call, even if the gateway is killed between
// its steps.
func TestKillApproval(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		times int // how often the command is run
		want  string
	}{
		{"suspended", 1, ""},
		{"granted", 0, "its outcome is unknown"},
	} {
		t.Run(test.point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{answer: followOrders, sandbox: "auto",
				channel: quiet + "\nowners = [7]\n[tools.exec]\nowner = \"ask\""})
			p := w.start("GATEWAY_FAULT=" + test.point + ":1")
			p.ready()
			w.order(7, "line")
			approve := func() {
				w.await("the request", func() bool { return w.code(7) != "" })
				w.telegram.Say(7, 7, "/approve "+w.code(7))
			}
			if test.point == "granted" {
				approve()
			}
			until(t, "the end of the gateway", p.done)
			p = w.start()
			p.ready()
			if test.point == "suspended" {
				approve()
			}
			w.await("the answer", func() bool {
				return has(w.texts(7), "the tools said")
			})
			p.kill()
			if got := w.counts()["line"]; got != test.times {
				t.Errorf("the command was run %d times, want %d", got, test.times)
			}
			got := w.results()["line"]
			if len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("the results are %q, want one with %q", got, test.want)
			}
		})
	}
}

// code returns the code of the newest approval request in a chat, or "".
func (w *world) code(chat int64) (code string) {
	for _, text := range w.texts(chat) {
		if _, rest, ok := strings.Cut(text, "(code "); ok {
			code, _, _ = strings.Cut(rest, ")")
		}
	}
	return code
}
