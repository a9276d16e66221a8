package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/tools/spawn"
	"gateway/bus"
)

// chaosSeeds is the number of runs of [TestChaos].
const chaosSeeds = 4

// chaos is a world in which people, the model and the process act at random.
type chaos struct {
	*world
	mu         sync.Mutex
	rand       *rand.Rand
	interrupts bool           // messages may also interrupt; messages before them then get no answer
	calm       atomic.Bool    // the model uses no more tools
	made       map[string]int // how often each call of exec ran, by turn and call
	said       []string       // IDs of people's messages that are not commands
	moved      bool           // the group has another id
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

// step returns a random step of the model.
func (c *chaos) step(r llm.Request) llmtest.Step {
	s := llmtest.Say("well")
	s.Usage = llm.Usage{Input: 10, Output: 1}
	s.Delay = time.Duration(c.n(20)) * time.Second
	task := strings.Contains(r.Messages[1].Text, "[your task] ")
	if len(r.Tools) == 0 || c.calm.Load() || c.n(3) == 0 {
		return s
	}
	s.Text = nil
	for range 1 + c.n(3) {
		call := llm.ToolCall{Name: "exec", Arguments: "{}"}
		switch n := c.n(6); {
		case n == 0 || task && n > 3:
			call.Name = "look"
		case n == 4:
			call = llm.ToolCall{Name: "ask", Arguments: `{"question":"Which?","options":["x","y"]}`}
		case n == 5:
			call.Name = "spawn"
			call.Arguments = fmt.Sprintf(`{"task":"work","wait":%t}`, c.n(2) == 0)
		}
		s.Calls = append(s.Calls, call)
	}
	return s
}

// exec is a tool that must not run twice for one call. It takes up to 9 seconds.
func (c *chaos) exec(ctx context.Context, call tool.Call) (tool.Result, error) {
	took := time.Duration(c.n(10)) * time.Second
	c.mu.Lock()
	c.made[fmt.Sprintf("%d %s", call.Turn, call.ID)]++
	c.mu.Unlock()
	select {
	case <-time.After(took):
		return tool.Result{Text: "done"}, nil
	case <-ctx.Done():
		return tool.Result{}, ctx.Err()
	}
}

// act makes one random event happen.
func (c *chaos) act() {
	chat := []string{"a", "b"}[c.n(2)]
	send := func(text string) {
		m := c.message(chat, text)
		if chat == "b" {
			m = inGroup(m, []string{"7", "8"}[c.n(2)], bus.Owner)
			if m.Sender.ID == "8" && c.n(2) == 0 {
				m.Role = bus.User
			}
			if c.moved {
				m.From, m.PreviousChat = at("b2"), "b"
			}
		}
		if name, _ := command.Parse(m); name == "" {
			c.said = append(c.said, m.ID)
		}
		c.put(m)
	}
	open, err := question.ListOpen(c.read())
	c.must(err)
	switch n := c.n(100); {
	case n < 35:
		send(fmt.Sprint("message ", n))
	case n < 65 && len(open) > 0:
		command := []string{"/approve %s", "/approve %s", "/deny %s", "/answer %s 1"}[c.n(4)]
		send(fmt.Sprintf(command, open[c.n(len(open))].Code))
	case n < 70:
		send("/stop")
	case n < 72:
		send("/new")
	case n < 76:
		modes := []pool.Mode{pool.Steer, pool.Followup, pool.Collect}
		if c.interrupts {
			modes = append(modes, pool.Interrupt)
		}
		send("/queue " + string(modes[c.n(len(modes))]))
	case n < 78:
		send("/halt")
		c.sleep(time.Duration(c.n(30)) * time.Second)
		send("/resume")
	case n < 86:
		c.must(c.stop())
		if c.n(2) == 0 { // while the process is down
			send(fmt.Sprint("message ", n))
		}
		if len(open) > 0 && c.n(2) == 0 {
			send("/approve " + open[0].Code)
		}
		time.Sleep(time.Duration(c.n(900)) * time.Second)
		c.start()
	default:
		c.sleep(time.Duration(c.n(600)) * time.Second)
	}
	if c.n(2) == 0 {
		c.sleep(time.Duration(c.n(20_000)) * time.Millisecond)
	}
}

// check waits until all work has had enough time, and then verifies the promises of [TestChaos].
func (c *chaos) check() {
	c.t.Helper()
	c.calm.Store(true)
	const open = "SELECT (SELECT count(*) FROM inbox WHERE state IN ('waiting', 'taken')) + " +
		"(SELECT count(*) FROM questions WHERE state = 'open')"
	for i := 0; i < 12 && c.count(open) > 0; i++ {
		c.sleep(20 * time.Minute)
	}
	c.sleep(time.Minute)
	for _, query := range []string{
		"SELECT 'inbox ' || state || ' ' || body FROM inbox WHERE state IN ('waiting', 'taken')",
		"SELECT 'turn ' || session || ' ' || state FROM turns WHERE state = 'running'",
		"SELECT 'question ' || session || ' ' || body FROM questions WHERE state = 'open'",
	} {
		for _, left := range c.column(query) {
			c.t.Errorf("left at the end: %s", left)
		}
	}
	d := c.d
	if n := d.pool.Counts(); n != (pool.Counts{}) {
		c.t.Errorf("in memory at the end: %+v", n)
	}
	for call, n := range c.made {
		if n > 1 {
			c.t.Errorf("call %s was made %d times, want once", call, n)
		}
	}
	var answered []string
	for _, chat := range []string{"a", "b", "b2"} {
		for _, m := range c.outbox(chat) {
			answered = append(answered, m.Answers...)
		}
	}
	for _, id := range c.said {
		if !c.interrupts && !slices.Contains(answered, id) && !c.stoppedBefore(id) {
			c.t.Errorf("message %s was never answered", id)
		}
	}
	calls := c.count("SELECT COALESCE(sum(calls), 0) FROM usage WHERE kind = 'day'")
	asked := len(c.model.Requests()) + len(c.deps.Notes.(*notesModel).asked)
	if calls > asked {
		c.t.Errorf("%d model calls were counted of %d", calls, asked)
	}
}

// stoppedBefore reports whether /stop in the group with its present id ended the work for a message
// to the id before. Its reply can't name that message, because the id means another one there.
func (c *chaos) stoppedBefore(id string) bool {
	return c.count(`SELECT count(*) FROM inbox LEFT JOIN turns ON turns.id = turn WHERE chat = 'b'
		AND message = $1 AND (inbox.state = 'dropped' OR turns.state = 'stopped')`, id) > 0
}

// TestChaos lets people, the model and restarts act in random order. At some time the group gets
// another id. It verifies that each message is answered, that nothing is left open, and that no
// call that must not run twice does.
func TestChaos(t *testing.T) {
	t.Parallel()
	for seed := range uint64(chaosSeeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &chaos{world: newWorld(t), rand: rand.New(rand.NewPCG(seed, 1)),
					made: make(map[string]int), interrupts: seed%2 == 1}
				c.model = llmtest.Func("chaos", c.step)
				c.deps.Model = checked{c.model, t}
				exec := tool.Tool{Name: "exec", Description: "Does it.", Effect: tool.Once, Run: c.exec,
					Schema: json.RawMessage(`{"type":"object","properties":{}}`)}
				c.tools(append(spawn.Tools(spawn.Options{DB: c.deps.DB, Inbox: c.deps.Inbox, Now: time.Now,
					Stop: func(ctx context.Context, key bus.Session) (bool, error) {
						return c.d.StopTask(ctx, key)
					}}), exec, ask.New(), act("look", tool.Pure, always("seen")))...)
				c.opts.Rules, c.opts.MaxRounds, c.opts.Grace = askFirst("exec"), 4, 5*time.Second
				c.opts.Usage = budget.New(&budget.Options{Day: budget.Limit{Tokens: 1e9}})
				when := c.n(80)
				c.start()
				for i := range 80 {
					c.moved = i >= when
					c.act()
				}
				c.check()
			})
		})
	}
}
