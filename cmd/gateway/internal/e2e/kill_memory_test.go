//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/agent/llm/openai/openaitest"
	"gateway/bus/bustest"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// TestKillMemory kills the gateway at random moments and between any two steps of writing notes
// and of Dream. At the end, each message must be either in the prompt or in one note. Each note
// that Dream has read must be in MEMORY.md once.
func TestKillMemory(t *testing.T) {
	t.Parallel()
	t.Run("random", func(t *testing.T) {
		t.Parallel()
		k := newMemoryTrial(t)
		// The loop has more rounds if the model has not received each kind of request yet.
		for n := 0; n < often(60) || k.lacks() != "" && n < 1000; n++ {
			p := k.start()
			p.ready()
			for range 1 + k.rand.IntN(3) {
				k.act(p)
			}
			k.killAfter(p, time.Duration(k.rand.IntN(300))*time.Millisecond)
		}
		k.settle()
		if what := k.lacks(); what != "" {
			t.Errorf("there were no %s: the test proves nothing", what)
		}
	})
	for _, point := range []string{"noted", "compacted"} {
		t.Run(point+" as the prompt is full", func(t *testing.T) {
			t.Parallel()
			k := newMemoryTrial(t)
			k.silent = true
			for n := range 3 {
				k.endAt(point, n+1)
			}
			k.settle()
		})
	}
	for _, point := range []string{
		"noted", "compacted", "archived", "chored", "dreamt", "planned", "applied", "committed",
	} {
		for _, n := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%s/%d", point, n), func(t *testing.T) {
				t.Parallel()
				k := newMemoryTrial(t)
				for range 2 {
					k.endAt(point, n)
				}
				k.settle()
			})
		}
	}
}

// A memoryTrial makes people talk to a gateway that is killed repeatedly, and knows what the memory
// must contain. It is also the model, whose notes and memory repeat its input.
type memoryTrial struct {
	*world
	t      *testing.T
	ledger *ledger
	rand   *rand.Rand
	silent bool // nobody uses commands

	commands map[string]int        // number of sent commands, by name and chat
	starts   map[session.Key]int64 // where the prompt of each session last began
	kills    int

	// Number of model calls by kind; guarded by ledger.mu.
	noted, analysed, edited int
}

// lacks returns a kind of request that the model has not received yet, or "".
func (k *memoryTrial) lacks() string {
	k.ledger.mu.Lock()
	defer k.ledger.mu.Unlock()
	switch {
	case k.noted == 0:
		return "notes"
	case k.analysed == 0:
		return "analyses"
	case k.edited == 0:
		return "edits"
	}
	return ""
}

// keeperChats is how many conversations there are.
const keeperChats = 3

func newMemoryTrial(t *testing.T) *memoryTrial {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	k := &memoryTrial{t: t, ledger: newLedger(), rand: rand.New(rand.NewPCG(seed, 0)),
		commands: make(map[string]int), starts: make(map[session.Key]int64)}
	k.world = newWorld(t, worldOptions{answer: k.answer, onSend: k.ledger.onSend,
		agent: "waiting = 1000\n[memory]\ndream_every = \"0s\""})
	// The context window is so small that a few messages fill it.
	k.config = strings.Replace(k.config, "model = \"fake-model\"",
		"model = \"fake-model\"\ncontext_window = 18000", 1)
	k.configure(quiet)
	return k
}

// padding makes messages long, but not so long that they count as parts of one text.
var padding = strings.Repeat(" and so on and on", 110)

// noteLine matches a person's message in a request for notes. dreamLine matches a note in a
// request of Dream, and findingLine matches what Dream has found.
var (
	noteLine    = regexp.MustCompile(`(?m)^\{"day":"[^"]*","who":"user",.*$`)
	dreamLine   = regexp.MustCompile(`(?m)^\| - noted: (.*)$`)
	findingLine = regexp.MustCompile(`(?m)^\| \[MEMORY\] (dreamt: .*)$`)
)

func (k *memoryTrial) answer(r openaitest.Request) openaitest.Reply {
	k.ledger.mu.Lock()
	defer k.ledger.mu.Unlock()
	system, last := r.Messages[0].Content, r.Messages[len(r.Messages)-1]
	switch {
	case strings.HasPrefix(system, "You keep the long-term notes"):
		k.noted++
		said := marks(strings.Join(noteLine.FindAllString(last.Content, -1), "\n"))
		if len(said) == 0 {
			return say("(nothing)")
		}
		return say("- noted: " + strings.Join(said, " "))
	case !strings.HasPrefix(system, "You look after the long-term memory"):
		asked, _ := question(r.Messages)
		reply := say("answer to " + strings.Join(asked, " "))
		tokens := len(r.Body) / 3
		reply.Usage = &openaitest.Usage{Prompt: tokens, Completion: 10, Total: tokens + 10}
		return reply
	case len(r.Tools) == 0:
		k.analysed++
		var lines []string
		for _, m := range dreamLine.FindAllStringSubmatch(last.Content, -1) {
			lines = append(lines, "[MEMORY] dreamt: "+m[1])
		}
		return say(strings.Join(append(lines, "[SKIP]"), "\n"))
	case last.Role == "tool":
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{Name: "done", Arguments: "{}"}}}
	}
	k.edited++
	var calls []openaitest.ToolCall
	for i, m := range findingLine.FindAllStringSubmatch(last.Content, -1) {
		calls = append(calls, openaitest.ToolCall{ID: fmt.Sprint("edit", i), Name: "edit_document",
			Arguments: `{"name":"MEMORY.md","old":"","new":` + quoteJSON("- "+m[1]) + `}`})
	}
	return openaitest.Reply{ToolCalls: calls}
}

// act makes a person write or send a command about the memory.
func (k *memoryTrial) act(p *process) {
	chat := int64(1 + k.rand.IntN(keeperChats))
	switch k.rand.IntN(9) {
	case 0:
		k.command(p, chat, "/compact")
	case 1:
		k.command(p, chat, "/new")
	case 2, 3:
		k.command(p, chat, "/dream")
	default:
		for range 1 + k.rand.IntN(2) {
			k.telegram.Say(chat, chat, k.ledger.next(chat, 0)+padding)
		}
	}
}

// command sends a command after all earlier messages were answered, because some commands discard
// pending messages.
func (k *memoryTrial) command(p *process, chat int64, text string) {
	k.t.Helper()
	if k.silent {
		return
	}
	k.ledger.await(k.t, 0, p.done)
	if _, open, _ := k.ledger.state(); open > 0 {
		return // p has ended before it answered
	}
	name := fmt.Sprint(text, " in ", chat)
	if text == "/dream" && k.commands[name] > k.answers(text, chat) {
		return // the gateway would answer two waiting commands at once
	}
	k.commands[name]++
	k.telegram.Say(chat, chat, text)
}

// replies has a pattern for the reply to each command.
var replies = map[string]*regexp.Regexp{
	"/compact": regexp.MustCompile(`^I have made notes of |^There is nothing to compact`),
	"/new":     regexp.MustCompile(`(?i)new conversation`),
	"/dream": regexp.MustCompile(
		`^I have (changed my memory|looked)|^There are no new notes|^- `),
}

// answers returns the number of replies to a command in a chat.
func (k *memoryTrial) answers(name string, chat int64) (n int) {
	to := telegramChat(chat)
	k.look(func(db *store.DB) {
		var body []byte
		for range k.query(db, []any{&body}, "SELECT body FROM outbox") {
			if m := outbound(k.t, body); m.To == to && replies[name].MatchString(m.Text) {
				n++
			}
		}
	})
	return n
}

// killAfter kills p after a duration and checks what it has left.
func (k *memoryTrial) killAfter(p *process, d time.Duration) {
	k.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.done:
		k.t.Fatalf("the gateway has ended by itself\n%s", p.newest())
	}
	p.kill()
	k.kills++
	k.autopsy()
}

// endAt starts a gateway and makes people write until it reaches a fault point for the nth time
// and dies.
func (k *memoryTrial) endAt(point string, n int) {
	k.t.Helper()
	p := k.start(fmt.Sprintf("GATEWAY_FAULT=%s:%d", point, n))
	ended := func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	}
	if p.logged("gateway ready") == 0 && !ended() { // the process may reach the point at once
		k.ledger.await(k.t, 0, p.done)
	}
	commands := []string{"/compact", "/new", "/dream"}
	for i := 0; i < 20 && !ended(); i++ {
		for chat := int64(1); chat <= keeperChats && !ended(); chat++ {
			for range 3 {
				k.telegram.Say(chat, chat, k.ledger.next(chat, 0)+padding)
				k.ledger.await(k.t, 0, p.done)
			}
			k.command(p, chat, commands[(i+int(chat))%len(commands)])
			k.command(p, chat, "/dream")
		}
	}
	if code := p.exited(patience); code != -1 {
		k.t.Fatalf("the gateway ended with code %d\n%s", code, p.newest())
	}
	k.kills++
	k.autopsy()
}

// autopsy checks what a dead process has left, and sometimes makes a conversation idle. If one
// more kill could make the gateway give up a turn, it first lets the gateway answer everything.
func (k *memoryTrial) autopsy() {
	k.t.Helper()
	k.look(func(db *store.DB) {
		k.checkStarts(db)
		var list []session.Key
		for key := range k.starts {
			list = append(list, key)
		}
		if len(list) == 0 || k.rand.IntN(2) > 0 {
			return
		}
		slices.SortFunc(list, func(a, b session.Key) int { return cmp.Compare(a.String(), b.String()) })
		key := list[k.rand.IntN(len(list))]
		err := db.Tx(k.t.Context(), func(tx *store.Tx) error {
			s, err := session.ReadSummary(tx, key)
			if err != nil {
				return err
			}
			work := background.Work{Kind: background.Idle, Scope: s.Scope, Session: key.String()}
			return background.Store{}.Put(tx, background.Task{Work: work}, time.Now())
		})
		if err != nil {
			k.t.Fatal(err)
		}
	})
	k.relieve()
}

// checkStarts checks that no session's prompt begins at an earlier message than before.
func (k *memoryTrial) checkStarts(db *store.DB) {
	k.t.Helper()
	var name string
	var start int64
	for range k.query(db, []any{&name, &start}, "SELECT key, start FROM sessions") {
		key := bustest.Session(name)
		if before := k.starts[key]; start < before {
			k.t.Errorf("the prompt of %s begins after message %d, and did so after %d", key, start,
				before)
		}
		k.starts[key] = start
	}
}

// settle runs a last process until all work is done, stops it, and checks the memory.
func (k *memoryTrial) settle() {
	k.t.Helper()
	p := k.start()
	p.ready()
	for chat := range int64(keeperChats) { // Dream must read the last notes, too
		k.command(p, chat+1, "/dream")
	}
	k.rest()
	p.kill()
	k.look(func(db *store.DB) {
		k.checkStarts(db)
		k.checkAnswers(db)
		for chat := range int64(keeperChats) {
			at := telegramChat(chat + 1)
			k.checkMemory(db, chat+1, session.KeyOf(at), memory.OfChat(at))
		}
	})
	k.t.Logf("%d messages, %d kills, %d commands; %d notes, %d analyses, %d edits by the model",
		k.ledger.answered, k.kills, sum(k.commands), k.noted, k.analysed, k.edited)
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
