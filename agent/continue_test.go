package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
)

// An askingTool is a tool that asks the person again and again until the answer is "enough".
type askingTool struct {
	begun     int  // number of calls that began
	running   bool // the call is still in progress while it waits
	cancelled int
}

func (i *askingTool) tool(name string, effect tool.Effect) tool.Tool {
	return tool.Tool{Name: name, Description: "Asks.", Effect: effect,
		Schema: json.RawMessage(`{"type":"object","properties":{}}`),
		Run: func(_ context.Context, c tool.Call) (tool.Result, error) {
			said := ""
			switch r := c.Reply; {
			case r == nil:
				i.begun++
			case !r.Answered:
				return tool.Result{Text: "nobody answers after" + string(r.State)}, nil
			default:
				if err := json.Unmarshal(r.State, &said); err != nil {
					return tool.Result{}, err
				}
				if said += " " + r.Text; r.Text == "enough" {
					return tool.Result{Text: "they said" + said}, nil
				}
			}
			state, err := json.Marshal(said)
			if err != nil {
				return tool.Result{}, err
			}
			w := &tool.Wait{Text: "What of " + name + "?", Options: []string{"more", "enough"},
				For: time.Hour, State: state}
			if i.running {
				w.Cancel = func() { i.cancelled++ }
			}
			return tool.Result{Wait: w}, nil
		}}
}

// The person's answer goes to the tool, which may ask again. The model sees only the final
// result.
func TestContinue(t *testing.T) {
	t.Parallel()
	const call = "assistant:  ask_me({})"
	for _, test := range []struct {
		name           string
		effect         tool.Effect
		running, fresh bool     // call in progress while it waits; restart before last answer
		say            []string // %s is the code of the question
		want           string   // result
		begun          int
	}{
		{name: "words and a number", say: []string{"who: knows", "2"},
			want: "they said who: knows enough"},
		{name: "button", say: []string{"/answer %s 1", "/answer %s 2"}, want: "they said more enough"},
		{name: "after a restart", say: []string{"x", "enough"}, fresh: true, want: "they said x enough"},
		{name: "in the middle", say: []string{"x", "enough"}, running: true, want: "they said x enough"},
		{name: "in the middle, after a restart", say: []string{"x"}, running: true, fresh: true,
			want: turn.ResultUnknown},
		{name: "in the middle of what may be repeated, after a restart", say: []string{"x", "enough"},
			running: true, fresh: true, effect: tool.Idempotent, want: "they said enough", begun: 2},
		{name: "nobody", say: []string{"x"}, want: `nobody answers after" x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				i := &askingTool{running: test.running}
				w.tools(i.tool("ask_me", test.effect))
				w.model.Queue(uses("ask_me"), llmtest.Say("fine"))
				w.start()
				w.say("a", "hello")
				for n, text := range test.say {
					if test.fresh && n == 1 {
						w.restart()
						w.settle()
					}
					if strings.Contains(text, "%s") {
						text = fmt.Sprintf(text, w.code())
					}
					w.say("a", text)
				}
				if test.fresh && len(test.say) == 1 {
					w.restart()
				}
				w.sleep(2 * time.Hour)
				w.wantQuiet()
				w.wantTranscript("a", "user: hello", call, "tool: "+test.want, "assistant: fine")
				if i.begun != max(test.begun, 1) {
					t.Errorf("the call was begun %d times", i.begun)
				}
			})
		})
	}
}

// If a turn is stopped while its call in progress waits for an answer, the call is cancelled.
func TestContinueStopped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{running: true}
		w.tools(i.tool("ask_me", tool.Once))
		w.model.Queue(uses("ask_me"))
		w.start()
		w.say("a", "hello")
		code := w.code()
		w.say("a", "/stop")
		w.say("a", "/answer "+code+" 2")
		w.wantAnswers("a", "What of ask_me?", "Stopped.", "That was already decided.")
		if i.cancelled != 1 {
			t.Errorf("the call was cancelled %d times, want once", i.cancelled)
		}
		w.wantQuiet()
	})
}

// The same holds for the call of a sub-agent, which ends with the conversation's turn.
func TestContinueStoppedTask(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{running: true}
		sub := w.spawning(i.tool("ask_me", tool.Once))
		w.model.Queue(spawns(true, "ask them"))
		sub.Queue(uses("ask_me"))
		w.start()
		w.say("a", "hello")
		asked := "What of ask_me?" + byCommand(w.code())
		w.say("a", "/stop")
		w.wantAnswers("a", asked, "Stopped, with one sub-agent.")
		if i.cancelled != 1 {
			t.Errorf("the call was cancelled %d times, want once", i.cancelled)
		}
		if c := w.d.pool.Counts(); c != (pool.Counts{}) {
			t.Errorf("in memory are %+v, want nothing", c)
		}
		w.wantQuiet()
	})
}

// In a group only the person whose turn runs the call can answer its question.
func TestContinueInGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{}
		w.tools(i.tool("ask_me", tool.Once))
		w.model.Queue(uses("ask_me"), llmtest.Say("fine"))
		w.start()
		w.put(w.inGroup("8", "ask me"))
		w.put(w.inGroup("7", "/answer "+w.code()+" 2"))
		w.wantAnswers("g", "What of ask_me?"+byReply, "I have asked somebody else.")
		w.put(w.inGroup("8", "enough"))
		w.wantAnswers("g", "What of ask_me?"+byReply, "I have asked somebody else.", "fine")
	})
}

// Calls that run at the same time ask their questions one after another. A call that must wait
// with its question is cancelled and begins again later.
func TestContinueSideBySide(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		first, second := &askingTool{running: true}, &askingTool{running: true}
		w.tools(first.tool("ask_one", tool.Pure), second.tool("ask_two", tool.Pure),
			act("read", tool.Pure, always("read it")))
		w.model.Queue(uses("ask_one", "read", "ask_two"), llmtest.Say("fine"))
		w.start()
		w.say("a", "hello")
		w.say("a", "enough", "enough")
		w.wantQuiet()
		if out := w.outbox("a"); len(out) != 3 || out[2].Text != "fine" {
			t.Errorf("the person reads %+v", out)
		}
		if n := first.begun + second.begun; n != 3 || first.cancelled+second.cancelled != 1 {
			t.Errorf("%d calls were begun, want 3, and %d cancelled, want one", n,
				first.cancelled+second.cancelled)
		}
	})
}

// A call that needs an approval asks its own question once, after the approval.
func TestContinueApproved(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{}
		w.tools(i.tool("ask_me", tool.Once))
		w.opts.Rules = askFirst("ask_me")
		w.model.Queue(uses("ask_me"), llmtest.Say("fine"))
		w.start()
		w.say("a", "hello")
		w.say("a", "/approve "+w.code())
		w.say("a", "x", "enough")
		out := w.outbox("a")
		if got := out[len(out)-1].Text; got != "fine" || i.begun != 1 {
			t.Errorf("the person reads %q, and %d calls were begun", got, i.begun)
		}
	})
}

// A new rule that denies the tool while its call is in progress ends the call at once.
func TestContinueDeniedInTheMiddle(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{running: true}
		w.tools(i.tool("ask_me", tool.Once))
		release := make(chan struct{})
		w.model.Queue(uses("ask_me"), held(llmtest.Say("fine"), release))
		w.start()
		w.say("a", "hello")
		s := w.opts.Settings
		s.Rules = policy.Rules{ruleFor("ask_me", policy.Deny, bus.Owner)}
		w.d.Configure(w.deps.Model, w.deps.Notes, s)
		w.say("a", "enough")
		if i.cancelled != 1 {
			t.Errorf("the call was cancelled %d times while the turn goes on, want once", i.cancelled)
		}
		close(release)
		w.wantQuiet()
		w.wantTranscript("a", "user: hello", "assistant:  ask_me({})", "tool: "+turn.ResultChanged,
			"assistant: fine")
		if i.cancelled != 1 {
			t.Errorf("the call was cancelled %d times, want once", i.cancelled)
		}
	})
}

// If a tool disappears while its call is in progress, the call ends at once.
func TestContinueWithoutTool(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{running: true}
		w.tools()
		w.must(w.deps.Tools.Set("server", []tool.Tool{i.tool("ask_me", tool.Once)}))
		release := make(chan struct{})
		w.model.Queue(uses("ask_me"), held(llmtest.Say("fine"), release))
		w.start()
		w.say("a", "hello")
		w.must(w.deps.Tools.Set("server", nil))
		w.say("a", "enough")
		if i.cancelled != 1 {
			t.Errorf("the call was cancelled %d times while the turn goes on, want once", i.cancelled)
		}
		close(release)
		w.wantQuiet()
	})
}

// If a turn fails before its call in progress continues, the call is cancelled.
func TestContinueFailed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{running: true}
		w.tools(i.tool("ask_me", tool.Once))
		w.model.Queue(uses("ask_me"))
		w.start()
		w.say("a", "hello")
		w.exec("UPDATE messages SET body = '{' WHERE body LIKE '%hello%'")
		w.say("a", "enough")
		if i.cancelled != 1 {
			t.Errorf("the call was cancelled %d times, want once", i.cancelled)
		}
	})
}

// A new rule that denies the tool while its question is open ends the call.
func TestContinueDenied(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		i := &askingTool{}
		w.tools(i.tool("ask_me", tool.Once))
		w.model.Queue(uses("ask_me"), llmtest.Say("fine"))
		w.start()
		w.say("a", "hello")
		w.must(w.stop())
		w.opts.Rules = policy.Rules{ruleFor("ask_me", policy.Deny, bus.Owner)}
		w.start()
		w.say("a", "enough")
		w.wantTranscript("a", "user: hello", "assistant:  ask_me({})", "tool: "+turn.ResultChanged,
			"assistant: fine")
	})
}
