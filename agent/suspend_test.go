package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/command"
	"gateway/agent/llm/llmtest"
	"gateway/agent/policy"
	"gateway/agent/pool"
	"gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/store"
)

// restart ends the dispatcher and starts another one, as a restart of the process does.
func (w *world) restart() {
	w.t.Helper()
	w.must(w.stop())
	w.start()
}

// code returns the code of the newest open question.
func (w *world) code() string {
	w.t.Helper()
	list, err := question.ListOpen(w.read())
	w.must(err)
	if len(list) == 0 {
		w.t.Fatal("there is no open question")
	}
	return list[len(list)-1].Code
}

// asksFor returns a step of the model that asks the person a question.
func asksFor(question string, options ...string) llmtest.Step {
	args, err := json.Marshal(map[string]any{"question": question, "options": options})
	if err != nil {
		panic(err)
	}
	return llmtest.Call("ask", string(args))
}

// The wording of an option may be the number of another one. Then a person who writes it means the
// wording, and no platform shows the options with numbers. A button still sends a number.
func TestAskForNumbers(t *testing.T) {
	t.Parallel()
	for say, want := range map[string]string{
		"1": "The user chose: 1", "2.": "The user answered: 2.", "5": "The user chose: 5",
		"/answer CODE 1": "The user chose: 5", "/answer CODE 3": "The user chose: 1",
		"/answer CODE\nI don't know": "The user answered: I don't know",
	} {
		t.Run(say, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(ask.New())
				w.model.Queue(asksFor("How many?", "5", "3", "1"), llmtest.Say("fine"))
				w.start()
				w.say("a", "order some")
				for _, b := range w.outbox("a")[0].Buttons {
					if b.Number != 0 {
						t.Errorf("the option %s has the number %d", b.Label, b.Number)
					}
				}
				w.say("a", strings.Replace(say, "CODE", w.code(), 1))
				w.wantQuiet()
				asked := lines(w.request(2).Messages[1:])
				if got := asked[len(asked)-1]; got != "tool: "+want {
					t.Errorf("the model reads %q, want %q", got, "tool: "+want)
				}
			})
		})
	}
}

// byCommand returns the end of a question whose session gets no messages of people.
func byCommand(code string) string {
	return fmt.Sprintf("\n\nTo answer, send `/answer %s` and your answer.", code)
}

// The question of a job with a session of its own says how to answer it, because what people write
// goes to their conversation. Its options have no numbers.
func TestAskInOwnSession(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.tools(ask.New())
		w.model.Queue(asksFor("Which colour?", "red"), llmtest.Say("hello"), llmtest.Say("painted"))
		w.start()
		w.add(w.job("a", schedule.Task, "paint"))
		code := w.code()
		if b := w.outbox("a")[0].Buttons; len(b) != 1 || b[0].Number != 0 {
			t.Errorf("the buttons are %+v, want one without a number", b)
		}
		w.say("a", "hi", "/answer "+code+" dark blue")
		w.wantQuiet()
		w.wantAnswers("a", "Which colour?"+byCommand(code), "hello", "Noted: dark blue", "painted")
		asked := lines(w.request(3).Messages)
		if got := asked[len(asked)-1]; got != "tool: The user answered: dark blue" {
			t.Errorf("the job reads %q", got)
		}
	})
}

// A program that posts to a hook can't answer a question of its turn. The users of the chat can,
// also in their own words if the turn runs in their conversation.
func TestAskAfterPost(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.tools(ask.New())
			w.model.Queue(asksFor("Which colour?"), llmtest.Say("painted"))
			w.start()
			w.put(w.posted("a", "paint", own))
			code := w.code()
			stranger := w.message("a", "/answer "+code+" red")
			stranger.Role = bus.Guest
			w.put(stranger)
			w.say("b", "/answer "+code+" red")
			w.wantAnswers("b", "I have asked somebody else.")
			want := []string{"Which colour?", "I have asked somebody else."}
			if own {
				want[0] += byCommand(code)
				want = append(want, "Noted: blue")
				w.say("a", "/answer "+code+" blue")
			} else {
				w.say("a", "blue")
			}
			w.wantQuiet()
			w.wantAnswers("a", append(want, "painted")...)
			asked := lines(w.request(2).Messages)
			if got := asked[len(asked)-1]; got != "tool: The user answered: blue" {
				t.Errorf("the hook's turn reads %q", got)
			}
		})
	}
}

// A question waits in the database, and nothing runs in the meantime. The answer is the result of
// the call.
func TestAsk(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, say, want string
		restart         bool
	}{
		{name: "option by number", say: "2", want: "The user chose: blue"},
		{name: "option by name", say: " Red", want: "The user chose: red"},
		{name: "own words", say: "green\n[end of x]", want: "The user answered: green\n(end of x)"},
		{name: "number of nothing", say: "3", want: "The user answered: 3"},
		{name: "after a restart", say: "1", want: "The user chose: red", restart: true},
		{name: "button", say: "/answer CODE 2", want: "The user chose: blue"},
		{name: "button after a restart", say: "/answer CODE 2", want: "The user chose: blue",
			restart: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(ask.New())
				w.model.Queue(asksFor("Which?", "red", "blue"), llmtest.Say("fine"))
				w.start()
				w.say("a", "paint it")
				w.wantAnswers("a", "Which?")
				if b := w.outbox("a")[0].Buttons; len(b) != 2 || b[1].Label != "blue" {
					t.Errorf("buttons are %+v, want one for each option", b)
				}
				if n := w.d.pool.Counts().Workers; n != 0 {
					t.Errorf("%d workers run while the turn waits, want none", n)
				}
				w.sleep(20 * time.Minute)
				if test.restart {
					w.restart()
				}
				w.say("a", strings.Replace(test.say, "CODE", w.code(), 1))
				w.wantQuiet()
				w.wantAsked(2, "user: paint it", `assistant:  ask({"options":["red","blue"],`+
					`"question":"Which?"})`, "tool: "+test.want)
				last := w.outbox("a")[len(w.outbox("a"))-1]
				if last.Text != "fine" {
					t.Errorf("the answer is %q, want fine", last.Text)
				}
				if last.Stream == "" {
					t.Error("the answer does not replace a preview that a killed process may have left")
				}
			})
		})
	}
}

func TestAskExpires(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.tools(ask.New())
			w.model.Queue(asksFor("Which?"), llmtest.Say("then not"))
			w.start()
			w.say("a", "hello")
			code := w.code()
			if restart {
				w.must(w.stop())
				time.Sleep(2 * time.Hour)
				w.start()
			}
			w.sleep(2 * time.Hour)
			w.wantAnswers("a", "Which?", "then not")
			w.wantTranscript("a", "user: hello", `assistant:  ask({"options":null,"question":"Which?"})`,
				"tool: "+turn.ResultNobody, "assistant: then not")
			w.say("a", "/answer "+code+" x")
			if out := w.outbox("a"); out[len(out)-1].Text != "That question has expired." {
				t.Errorf("the late answer is told %q", out[len(out)-1].Text)
			}
			w.wantQuiet()
		})
	}
}

// byReply is the end of a question in a group, where other messages may not be for the agent.
const byReply = "\n\nTo answer, reply to this message."

// In a group only the person who was asked can answer. Messages of others wait for their turn.
func TestAskInGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), llmtest.Say("fine"))
		w.opts.QueueMode = pool.Followup
		w.start()
		in := func(sender, text string) bus.InboundMessage {
			m := w.message("g", text)
			m.Group, m.Sender = true, bus.Sender{ID: sender, Name: "P" + sender}
			return m
		}
		w.put(in("7", "hello"))
		w.put(in("8", "me too"))
		code := w.code()
		w.put(in("8", "/answer "+code+" mine"))
		w.wantAnswers("g", "Which?"+byReply, "I have asked somebody else.")
		w.model.Queue(llmtest.Say("and you"))
		w.put(in("7", "this"))
		w.wantQuiet()
		w.wantAnswers("g", "Which?"+byReply, "I have asked somebody else.", "fine", "and you")
		w.wantAsked(2, "user: P7 (owner): hello",
			`assistant:  ask({"options":null,"question":"Which?"})`, "tool: The user answered: this")
	})
}

// In a group a question expires early, so that it can't keep other members waiting for days.
func TestAskInGroupEndsSoon(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(llmtest.Call("ask", `{"question":"Which?","minutes":10080}`),
			llmtest.Say("then not"), llmtest.Say("here I am"))
		w.opts.QueueMode = pool.Followup
		w.start()
		w.put(w.inGroup("8", "ask me, and wait for a week"))
		w.put(w.inGroup("7", "are you there?"))
		w.wantAnswers("g", "Which?"+byReply)
		w.sleep(15 * time.Minute)
		w.wantAnswers("g", "Which?"+byReply, "then not", "here I am")
	})
}

// counting returns a tool that needs no arguments, counts its calls and has an argv.
func counting(name string, effect tool.Effect, calls *int) tool.Tool {
	x := act(name, effect, func(context.Context) (string, error) {
		*calls++
		return fmt.Sprintf("%s %d", name, *calls), nil
	})
	x.Argv = func(tool.Call) []string { return []string{"rm", "-rf", "a\x1b[2Kb"} }
	return x
}

func askFirst(names ...string) policy.Rules {
	var rules policy.Rules
	for _, n := range names {
		rules = append(rules, policy.Rule{Tool: n, Roles: map[bus.Role]policy.Decision{
			bus.Owner: policy.Ask, bus.Admin: policy.Ask, bus.User: policy.Ask,
			bus.Guest: policy.Deny,
		}})
	}
	return rules
}

// ruleFor returns a rule about a tool for one role.
func ruleFor(name string, v policy.Decision, role bus.Role) policy.Rule {
	return policy.Rule{Tool: name, Roles: map[bus.Role]policy.Decision{role: v}}
}

func TestApproval(t *testing.T) {
	t.Parallel()
	const shown = "`exec` wants to run:\n```\n[0] rm\n[1] -rf\n[2] a⟨U+001B⟩[2Kb\n```\n\nShall I?"
	for _, test := range []struct {
		name, say string
		role      bus.Role // role of the person who says it
		restart   bool
		calls     int
		result    string
		told      string
	}{
		{name: "approved", say: "/approve CODE", role: "owner", calls: 1, result: "exec 1",
			told: "Approved."},
		{name: "after a restart", say: "/approve CODE", role: "owner", restart: true, calls: 1,
			result: "exec 1", told: "Approved."},
		{name: "by an admin, in lower case", say: "/APPROVE code", role: "admin", calls: 1,
			result: "exec 1", told: "Approved."},
		{name: "denied", say: "/deny CODE", role: "owner", result: command.Denied, told: "Denied."},
		{name: "denied after a restart", say: "/deny CODE", role: "owner", restart: true,
			result: command.Denied, told: "Denied."},
		{name: "something else", say: "wait, no", role: "owner", result: turn.ResultOther},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				calls := 0
				w.tools(counting("exec", tool.Once, &calls))
				w.opts.Rules = askFirst("exec")
				w.model.Queue(uses("exec"), llmtest.Say("done"))
				w.start()
				w.say("a", "clean up")
				if got := w.outbox("a")[0].Text; !strings.HasPrefix(got, shown) {
					t.Errorf("the person reads %q, want %q", got, shown)
				}
				if test.restart {
					w.restart()
				}
				if calls != 0 {
					t.Fatal("the tool was used before anybody approved")
				}
				code := w.code()
				say := strings.NewReplacer("CODE", code, "code", strings.ToLower(code)).Replace(test.say)
				m := w.message("a", say)
				m.Role = test.role
				w.put(m)
				w.wantQuiet()
				if calls != test.calls {
					t.Errorf("the tool was used %d times, want %d", calls, test.calls)
				}
				if got := w.request(2).Messages[3].Text; got != test.result {
					t.Errorf("the result is %q, want %q", got, test.result)
				}
				if got := w.outbox("a")[1].Text; test.told != "" && got != test.told {
					t.Errorf("the person is told %q, want %q", got, test.told)
				}
				w.say("a", "/approve "+code)
				out := w.outbox("a")
				if got := out[len(out)-1].Text; got != "That was already decided." || calls != test.calls {
					t.Errorf("a second approval is told %q, and the tool was used %d times", got, calls)
				}
			})
		})
	}
}

// A tool can require an approval itself. Only a rule that allows the tool overrides that.
func TestToolAsks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		rules policy.Rules
		calls int
	}{
		{"no rule", nil, 0},
		{"another tool's rule", askFirst("other"), 0},
		{"a rule about others", policy.Rules{ruleFor("exec", policy.Allow, bus.User)}, 0},
		{"allowed", policy.Rules{ruleFor("exec", policy.Allow, bus.Owner)}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				calls := 0
				x := counting("exec", tool.Pure, &calls)
				x.Asks = func(c tool.Call) bool { return c.Address == at("a") }
				w.tools(x)
				w.opts.Rules = test.rules
				w.model.Queue(uses("exec"), llmtest.Say("done"))
				w.start()
				w.say("a", "do it")
				if calls != test.calls {
					t.Errorf("the tool was used %d times, want %d", calls, test.calls)
				}
				if test.calls == 0 {
					w.say("a", "/approve "+w.code())
				}
				w.wantQuiet()
				if calls != 1 {
					t.Errorf("the tool was used %d times in all, want once", calls)
				}
			})
		})
	}
}

// If the person who asked may not approve, the owners are asked. If nobody answers, the call is
// not approved.
func TestApprovalByOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		calls := 0
		w.tools(counting("exec", tool.Once, &calls))
		w.opts.Rules = askFirst("exec")
		w.outside.owners = owners("boss", "a")
		w.model.Queue(uses("exec"), llmtest.Say("not done"))
		w.start()
		user := func(text string) bus.InboundMessage {
			m := w.message("a", text)
			m.Role = bus.User
			return m
		}
		w.put(user("clean up"))
		w.put(user("/approve " + w.code()))
		w.put(user("hello?")) // this message waits
		if got := w.outbox("a")[1].Text; got != "Only admins and owners can decide that." {
			t.Errorf("the user is told %q", got)
		}
		boss := w.outbox("boss")
		const where = "In `test/a`, where Ada (user) writes, `exec`"
		if len(boss) != 1 || !strings.Contains(boss[0].Text, where) {
			t.Fatalf("the owner reads %+v", boss)
		}
		w.sleep(11 * time.Minute)
		if calls != 0 {
			t.Error("the tool was used without approval")
		}
		if got := w.request(2).Messages[3].Text; got != turn.ResultNotApproved {
			t.Errorf("the result is %q, want %q", got, turn.ResultNotApproved)
		}
		if got := w.request(2).Messages[4].Text; !strings.Contains(got, "hello?") {
			t.Errorf("what was said meanwhile is not in %q", got)
		}
		w.wantQuiet()
	})
}

func owners(chats ...string) func(q store.Queryer) ([]bus.Address, error) {
	return func(store.Queryer) (list []bus.Address, _ error) {
		for _, c := range chats {
			list = append(list, at(c))
		}
		return list, nil
	}
}

// A question that can't be read any more ends only its turn, which tells the chat.
func TestUnreadableQuestion(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), llmtest.Say("what is red?"))
		w.start()
		w.say("a", "paint it")
		w.exec("UPDATE questions SET body = '{'")
		w.say("a", "red")
		w.lived()
		w.wantQuiet()
		w.wantAnswers("a", "Which?", turn.SayBroken, "what is red?")
	})
}

// What a program posts to a hook of the chat does not wait until somebody has answered a question
// in the chat. The turn with the question goes on afterwards.
func TestPostDuringQuestion(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(asksFor("Which colour?"), llmtest.Say("The disk is full."), llmtest.Say("painted"))
		w.start()
		w.say("a", "paint it")
		w.put(w.posted("a", "disk full", false))
		w.wantAnswers("a", "Which colour?", "The disk is full.")
		w.say("a", "red")
		w.wantQuiet()
		w.wantAnswers("a", "Which colour?", "The disk is full.", "painted")
	})
}

// If the turn of such a post asks something itself, the next post waits for it, also after a
// restart.
func TestPostAsksDuringQuestion(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(asksFor("Which colour?"), asksFor("Delete it?"), llmtest.Say("deleted"),
			llmtest.Say("the next post"), llmtest.Say("painted"))
		w.start()
		w.say("a", "paint it")
		w.put(w.posted("a", "disk full", false), w.posted("a", "disk fuller", false))
		code := w.code()
		w.restart()
		w.sleep(time.Minute)
		w.say("a", "/answer "+code+" yes")
		w.sleep(time.Minute)
		w.say("a", "red")
		w.wantQuiet()
		w.wantAnswers("a", "Which colour?", "Delete it?"+byCommand(code), "Noted: yes", "deleted",
			"the next post", "painted")
	})
}
