package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/tools/spawn"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/store"
)

// spawning gives the world the tools for sub-agents and returns a separate model for them, so
// that the requests of sub-agents and of the conversation do not depend on each other.
func (w *world) spawning(more ...tool.Tool) *llmtest.Model {
	w.t.Helper()
	sub := llmtest.New("sub")
	w.deps.Model = checked{byTask{w.model, sub}, w.t}
	w.tools(append(more, spawn.Tools(spawn.Options{DB: w.deps.DB, Inbox: w.deps.Inbox, Now: time.Now,
		Stop: func(ctx context.Context, key bus.Session) (bool, error) { return w.d.StopTask(ctx, key) },
	})...)...)
	return sub
}

// byTask sends requests of conversations to one model and requests of sub-agents to another one.
type byTask struct{ people, tasks llm.Model }

func (m byTask) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	if strings.Contains(r.Messages[1].Text, "[your task] ") {
		return m.tasks.Stream(ctx, r)
	}
	return m.people.Stream(ctx, r)
}

// spawns returns a step of the model that gives tasks to sub-agents.
func spawns(wait bool, tasks ...string) llmtest.Step {
	step := uses(slices.Repeat([]string{"spawn"}, len(tasks))...)
	for i, task := range tasks {
		args, err := json.Marshal(map[string]any{"task": task, "label": "L " + task, "wait": wait})
		if err != nil {
			panic(err)
		}
		step.Calls[i].Arguments = string(args)
	}
	return step
}

// later returns s with a delay, after everything else that is under way. The outcome of a sub-agent
// that needs no time can join the turn that has started it.
func later(s llmtest.Step) llmtest.Step {
	s.Delay = time.Second
	return s
}

// A sub-agent works in its own session. Its outcome begins a turn that reports it.
func TestSpawn(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			sub := w.spawning(act("look", tool.Pure, always("seen")), ask.New())
			release := make(chan struct{})
			sub.Queue(uses("look"), held(llmtest.Say("it is blue"), release))
			w.model.Queue(spawns(false, "look at it"), llmtest.Say("I have sent somebody."))
			w.start()
			w.say("a", "which colour?")
			w.wantAnswers("a", "I have sent somebody.")
			w.model.Queue(llmtest.Say("It is blue."))
			if restart { // the call is interrupted and repeated
				w.must(w.stop())
				sub.Queue(llmtest.Say("it is blue"))
				w.start()
			}
			close(release)
			w.wantQuiet()
			w.wantAnswers("a", "I have sent somebody.", "It is blue.")
			first := sub.Requests()[0]
			var names []string
			for _, s := range first.Tools {
				names = append(names, s.Name)
			}
			if want := []string{"look"}; !slices.Equal(names, want) {
				t.Errorf("the sub-agent has the tools %q, want %q", names, want)
			}
			last := w.request(3).Messages
			want := `[outcome of the sub-agent "L look at it"; tell the user what matters of it, ` +
				"as your own work]\nit is blue\n[end of outcome of the sub-agent \"L look at it\"]"
			if got := last[len(last)-1].Text; !strings.HasSuffix(got, want) {
				t.Errorf("the outcome is %q, want %q", got, want)
			}
			if got := sub.Requests()[len(sub.Requests())-1].Messages; len(got) != 4 {
				t.Errorf("the sub-agent's last request has %d messages, want its task, call and result",
					len(got)-1)
			}
		})
	}
}

// With wait the outcome is the result of the call. The turn has no worker while it waits.
func TestSpawnAwaited(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			sub := w.spawning()
			release := make(chan struct{})
			sub.Queue(held(llmtest.Say("it is blue"), release))
			w.model.Queue(spawns(true, "look"), llmtest.Say("Blue."))
			w.start()
			w.say("a", "which colour?")
			if w.d.pool.Counts().Workers != 1 { // the worker of the sub-agent
				t.Error("the waiting turn has a worker")
			}
			if restart {
				w.must(w.stop())
				sub.Queue(llmtest.Say("it is blue"))
				w.start()
			}
			close(release)
			w.wantQuiet()
			w.wantAnswers("a", "Blue.")
			if got := w.request(2).Messages[3].Text; got != "it is blue" {
				t.Errorf("the result of the call is %q", got)
			}
		})
	}
}

// A message of the person ends the waiting, and the sub-agent continues.
func TestSpawnAwaitedAndInterrupted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.spawning()
		release := make(chan struct{})
		sub.Queue(held(llmtest.Say("it is blue"), release))
		w.model.Queue(spawns(true, "look"), llmtest.Say("Soon."))
		w.start()
		w.say("a", "which colour?", "how long?")
		w.wantAnswers("a", "Soon.")
		w.model.Queue(llmtest.Say("Blue."))
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "Soon.", "Blue.")
		if got := w.request(2).Messages; got[3].Text != turn.ResultGoesOn ||
			!strings.HasSuffix(got[4].Text, "how long?") {
			t.Errorf("the model was asked %q", lines(got[1:]))
		}
	})
}

// At most four sub-agents of a conversation work at the same time. The others begin when one has
// ended.
func TestSpawnMany(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			sub := w.spawning()
			w.opts.QueueMode = pool.Collect
			release := make(chan struct{})
			var tasks []string
			for i := range 7 {
				tasks = append(tasks, fmt.Sprint("task ", i))
				sub.Queue(held(llmtest.Say("done"), release))
			}
			w.model.Queue(spawns(false, tasks...), llmtest.Say("they work"))
			w.start()
			w.say("a", "hello")
			w.sleep(2 * time.Second)
			if n := sub.Running(); n != turn.MaxTasks {
				t.Errorf("%d sub-agents work at once, want %d", n, turn.MaxTasks)
			}
			w.model.Queue(llmtest.Call("subagents", "{}"), llmtest.Say("listed"))
			w.say("a", "how is it?")
			w.sleep(time.Minute)
			asked := w.request(4).Messages
			list := asked[len(asked)-1].Text
			if strings.Count(list, ": works,") != 4 || strings.Count(list, ": waits for its turn,") != 3 {
				t.Errorf("the list is %q, want 4 that work and 3 that wait", list)
			}
			w.model.Queue(llmtest.Say("all done"))
			if restart {
				w.must(w.stop())
				for range turn.MaxTasks { // repeated calls
					sub.Queue(llmtest.Say("done"))
				}
				w.start()
			}
			close(release)
			w.sleep(time.Minute)
			outcomes := w.count("SELECT count(*) FROM inbox WHERE message LIKE 'outcome:%'")
			if outcomes != len(tasks) {
				t.Errorf("%d outcomes have come, want %d", outcomes, len(tasks))
			}
			for w.model.Left() < 1 && w.count("SELECT count(*) FROM inbox WHERE state = 'waiting'") > 0 {
				w.model.Queue(llmtest.Say("more"))
				w.sleep(time.Minute)
			}
		})
	}
}

// /stop also ends the sub-agents, including those that have not begun.
func TestStopEndsSubagents(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.spawning()
		var stopped []string
		w.outside.stopped = func(key string, _ *bus.InboundMessage) { stopped = append(stopped, key) }
		never := make(chan struct{})
		for range turn.MaxTasks {
			sub.Queue(held(llmtest.Say("done"), never))
		}
		w.model.Queue(spawns(false, "1", "2", "3", "4", "5", "6"), llmtest.Say("they work"))
		w.start()
		w.say("a", "hello", "/stop")
		w.wantAnswers("a", "they work", "Stopped, with 6 sub-agents.")
		w.wantQuiet()
		w.restart()
		w.wantQuiet()
		if n := len(sub.Requests()); n != turn.MaxTasks {
			t.Errorf("%d sub-agents were begun, want %d", n, turn.MaxTasks)
		}
		if !slices.Equal(stopped, []string{"test/a"}) {
			t.Errorf("told of the stop of %q", stopped)
		}
		close(never)
	})
}

// The agent itself can stop one of its sub-agents.
func TestStopOneSubagent(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.spawning()
		never, release := make(chan struct{}), make(chan struct{})
		sub.Queue(held(llmtest.Say("one"), never), held(llmtest.Say("two"), release))
		w.model.Queue(spawns(false, "1"), later(spawns(false, "2")),
			later(llmtest.Call("subagents", `{"stop":"1-call_1"}`)),
			llmtest.Call("subagents", `{"stop":"1-call_1"}`), llmtest.Say("stopped"))
		w.start()
		w.say("a", "hello")
		w.sleep(time.Minute)
		w.wantAnswers("a", "stopped")
		asked := w.request(5).Messages
		if got := asked[7].Text; got != "Stopped. No outcome of it will come." {
			t.Errorf("the result is %q", got)
		}
		if got := asked[9].Text; !strings.HasPrefix(got, "Error: no sub-agent with the id") {
			t.Errorf("the second result is %q", got)
		}
		w.model.Queue(llmtest.Say("two is there"))
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "stopped", "two is there")
		close(never)
	})
}

// The usage of a sub-agent is charged to the conversation and the person. It is limited by the
// sub-agent's share of the turn's budget.
func TestSubagentBudget(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.spawning(act("look", tool.Pure, always("seen")))
		w.opts.Usage = budget.New(&budget.Options{Turn: budget.Limit{Tokens: 8000}})
		step := uses("look")
		step.Usage = llm.Usage{Input: 900, Output: 100}
		sub.Queue(later(step))
		w.model.Queue(spawns(false, "look"), llmtest.Say("sent"), llmtest.Say("it could not"))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", "sent", "it could not")
		asked := w.request(3).Messages
		if got := asked[len(asked)-1].Text; !strings.Contains(got, turn.ErrorText(budget.ErrExceeded)) {
			t.Errorf("the outcome is %q, want that the budget is spent", got)
		}
		want := "session test/a "
		if !slices.ContainsFunc(w.spent(), func(s string) bool { return strings.HasPrefix(s, want) }) ||
			slices.ContainsFunc(w.spent(), func(s string) bool { return strings.Contains(s, "#") }) {
			t.Errorf("counted was %q, want it for %s", w.spent(), want)
		}
	})
}

// While everything is halted no tool and no model is called, also after a restart. Running turns
// end.
func TestHalt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		calls := 0
		release := make(chan struct{})
		w.tools(counting("exec", tool.Once, &calls))
		w.model.Queue(held(uses("exec"), release))
		w.start()
		w.say("a", "hello")
		w.say("b", "/halt")
		close(release)
		w.settle()
		w.wantAnswers("a", turn.SayHalted)
		if calls != 0 {
			t.Error("a tool was used after the halt")
		}
		w.restart()
		w.say("a", "hello?")
		w.wantAnswers("a", turn.SayHalted, turn.SayHalted)
		guest := w.message("a", "/resume")
		guest.Role = bus.User
		w.put(guest)
		if h, err := policy.GetHalt(w.read()); err != nil || h == nil || h.By != "test/7" {
			t.Errorf("the halt is %+v, %v, want that of test/7", h, err)
		}
		w.say("b", "/halt", "/resume", "/resume")
		w.model.Queue(llmtest.Say("I am back"))
		w.say("a", "hello!")
		w.wantQuiet()
		out := w.outbox("a")
		if got := out[len(out)-1].Text; got != "I am back" {
			t.Errorf("after the halt the answer is %q", got)
		}
	})
}

// If the same call repeatedly has the same result, the guard ends the loop, also in a resumed
// turn.
func TestLoopGuard(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			n := 0
			w.tools(act("look", tool.Pure, always("seen")), act("count", tool.Pure,
				func(context.Context) (string, error) { n++; return fmt.Sprint(n), nil }))
			w.model.Queue(uses("look", "count"), uses("look", "count"), uses("look", "count"))
			if restart {
				w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
			}
			w.model.Queue(uses("look", "count"), uses("look", "count"), llmtest.Say("enough"))
			w.opts.Grace = time.Second
			w.start()
			w.say("a", "hello")
			if restart {
				w.restart()
			}
			w.wantQuiet()
			w.wantAnswers("a", "enough")
			requests := w.model.Requests()
			last := requests[len(requests)-1].Messages
			var seen []string
			for _, m := range last {
				if m.Role == llm.ToolRole && strings.HasPrefix(m.Text, "seen") {
					seen = append(seen, m.Text)
				}
			}
			want := []string{"seen", "seen", "seen" + turn.NoteLoop, "seen" + turn.NoteLoop,
				"seen" + turn.NoteLoopEnded}
			if !slices.Equal(seen, want) {
				t.Errorf("the results are %q, want %q", seen, want)
			}
			if got := last[len(last)-1].Text; got != turn.AskLoop {
				t.Errorf("the model is asked %q at last, want %q", got, turn.AskLoop)
			}
			if len(requests[len(requests)-1].Tools) != 0 {
				t.Error("the model may still use tools")
			}
		})
	}
}

// A task can contain overheard messages of people with fewer rights than the person who asked. A
// turn about its outcome then has only the rights of these people.
func TestOutcomeOfOverheard(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		calls := 0
		sub := w.spawning(counting("exec", tool.Once, &calls))
		w.opts.Rules = policy.Rules{ruleFor("exec", policy.Deny, bus.User)}
		w.model.Queue(spawns(false, "look"), llmtest.Say("sent"), uses("exec"), llmtest.Say("done"))
		sub.Queue(later(llmtest.Say("run exec")))
		w.start()
		w.tx(func(tx *store.Tx) error {
			_, err := w.deps.Inbox.PutAmbient(tx, inGroup(w.message("g", "have it run"), "8", bus.User),
				time.Now())
			return err
		})
		w.put(inGroup(w.message("g", "what was said?"), "7", bus.Owner))
		w.sleep(time.Minute)
		out := w.outbox("g")
		if got := out[len(out)-1].Text; calls != 0 || !strings.Contains(got, "a user only may not") {
			t.Errorf("exec ran %d times, and the group was told %q, want a request", calls, got)
		}
		w.say("g", "/deny "+w.code())
	})
}

// A message that a person writes while the model repeats itself may say what to do instead. The
// model then has its tools again.
func TestMessageEndsALoop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		looks := 0
		release := make(chan struct{})
		w.tools(act("look", tool.Pure, func(context.Context) (string, error) {
			if looks++; looks == 5 {
				<-release
			}
			return "seen", nil
		}), act("count", tool.Pure, always("1")))
		for range 5 {
			w.model.Queue(uses("look"))
		}
		w.model.Queue(uses("count"), llmtest.Say("counted"))
		w.start()
		w.say("a", "look")
		w.say("a", "count instead")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "counted")
		if got := offered(w.request(6)); len(got) == 0 {
			t.Error("the model has no tools for the new message")
		}
	})
}
