package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/command"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
)

// inMoved returns a message of a person in the group "g" after it has moved to the id "g2".
func (w *world) inMoved(sender, text string) bus.InboundMessage {
	m := w.inGroup(sender, text)
	m.From, m.PreviousChat = at("g2"), "g"
	return m
}

// wantTold checks the texts of all messages in the outbox, in their order.
func (w *world) wantTold(want ...string) {
	w.t.Helper()
	rows, err := w.deps.Outbox.Open(w.read(), 0)
	w.must(err)
	var got []string
	for _, row := range rows {
		got = append(got, row.Message.Text)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("people were told %q, want %q", got, want)
	}
}

// A message to the present id of a group that has moved is answered after those to the id before,
// also after a restart.
func TestOrderInMovedGroup(t *testing.T) {
	t.Parallel()
	for _, mode := range []pool.Mode{pool.Steer, pool.Followup, pool.Collect, pool.Interrupt} {
		for _, restart := range []bool{false, true} {
			t.Run(string(mode), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.opts.QueueMode = mode
					release := make(chan struct{})
					w.model.Queue(held(llmtest.Say("to a"), release))
					w.start()
					w.put(w.inGroup("a", "one"), w.inGroup("b", "two"))
					w.put(w.inMoved("b", "three"))
					w.put(w.inMoved("a", "four"))
					w.sleep(time.Minute)
					w.wantTold()
					if restart {
						w.must(w.stop())
						w.model.Queue(llmtest.Say("to a"))
					}
					w.model.Queue(llmtest.Say("to b"), llmtest.Say("to b there"), llmtest.Say("to a there"))
					if restart {
						w.start()
					} else {
						close(release)
					}
					w.wantQuiet()
					w.wantTold("to a", "to b", "to b there", "to a there")
				})
			})
		}
	}
}

// The session of a group that has moved may have a turn before the gateway learns of the move. The
// messages after that turn wait for those to the id before.
func TestMoveDuringTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		first, second := make(chan struct{}), make(chan struct{})
		w.model.Queue(held(llmtest.Say("to a there"), first), held(llmtest.Say("to b"), second),
			llmtest.Say("to b there"))
		w.start()
		early := w.inMoved("a", "zero")
		early.PreviousChat = ""
		w.put(early)
		w.put(w.inGroup("b", "one"))
		w.put(w.inMoved("b", "two"))
		close(first)
		w.sleep(time.Minute)
		w.wantTold("to a there")
		close(second)
		w.wantQuiet()
		w.wantTold("to a there", "to b", "to b there")
	})
}

// A turn of a message from before a group moved, which begins after that, does not take the memory
// of the group back to the id before.
func TestMemoryStaysInMovedGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.remembers(memory.OfChat(at("g")), memory.Fact{Key: "code", Value: "tulip", Pinned: true})
		w.model.Queue(held(llmtest.Say("to a"), release), llmtest.Say("to b"),
			llmtest.Say("to b there"))
		w.start()
		w.put(w.inGroup("a", "one"), w.inGroup("b", "two"))
		w.put(w.inMoved("b", "three"))
		close(release)
		w.sleep(time.Minute)
		w.wantTold("to a", "to b", "to b there")
		for i, prompt := range systems(w.model) {
			if !strings.Contains(prompt, "tulip") {
				t.Errorf("prompt %d does not hold what the group knew", i)
			}
		}
		for chat, want := range map[string]int{"g": 0, "g2": 1} {
			facts, _, err := w.deps.Memory.In(memory.OfChat(at(chat))).Always(w.read(), 0)
			if err != nil || len(facts) != want {
				t.Errorf("the memory of %s has %v, %v", chat, facts, err)
			}
		}
	})
}

// A group can move while the turn of a message from before loads a file. The turn then uses the
// memory where it is now, and leaves it there. The session of the turn may be a new one.
func TestMoveWhileTurnBegins(t *testing.T) {
	t.Parallel()
	for _, scope := range []bus.SessionScope{bus.PerChat, bus.PerSpeaker} {
		t.Run(string(scope), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.scope(scope)
				w.withFiles().wait = time.Minute
				w.remembers(memory.OfChat(at("g")), memory.Fact{Key: "code", Value: "tulip", Pinned: true})
				w.remembers(memory.OfChat(at("g")), memory.Fact{Key: "rose", Value: "a rose called Anna"})
				w.model.Queue(llmtest.Say("hello"), llmtest.Say("seen"), llmtest.Say("here"))
				w.start()
				w.put(w.inGroup("a", "hello"))
				w.settle()
				w.put(carrying(w.inGroup("b", "the rose called Anna?"), photo("a.png")))
				w.sleep(time.Second)
				w.put(carrying(w.inMoved("c", "where is Anna?"), photo("b.png")))
				w.sleep(5 * time.Minute)
				w.wantTold("hello", "seen", "here")
				for i, prompt := range systems(w.model) {
					if !strings.Contains(prompt, "tulip") {
						t.Errorf("prompt %d does not hold what the group knew", i)
					}
				}
				if text := newestText(w.model, 1); !strings.Contains(text, "a rose called") {
					t.Errorf("nothing is recalled for %s", text)
				}
				for chat, want := range map[string]int{"g": 0, "g2": 2} {
					facts, err := w.deps.Memory.In(memory.OfChat(at(chat))).Facts(w.read(), "", 9)
					if err != nil || len(facts) != want {
						t.Errorf("the memory of %s has %v, %v", chat, facts, err)
					}
				}
			})
		})
	}
}

// A group never gets the memory of a person, even if its session had that memory.
func TestNoMemoryOfPersonInGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.remembers(memory.OfPerson(1), memory.Fact{Key: "code", Value: "tulip", Pinned: true})
		w.model.Queue(llmtest.Say("one"), llmtest.Say("two"))
		w.start()
		w.put(w.inGroup("a", "hello"))
		w.exec("UPDATE sessions SET scope = $1", string(memory.OfPerson(1)))
		w.put(w.inGroup("a", "hello again"))
		w.wantTold("one", "two")
		if prompts := systems(w.model); strings.Contains(prompts[1], "tulip") {
			t.Error("the group reads what a person knows")
		}
	})
}

// A person who was asked before the group moved can answer after the move. The messages of other
// people wait.
func TestAnswerInMovedGroup(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			release := make(chan struct{})
			w.tools(ask.New())
			w.model.Queue(asksFor("Which?"), held(llmtest.Say("fine"), release),
				llmtest.Say("to b there"))
			w.start()
			w.put(w.inGroup("a", "hello"))
			w.put(w.inMoved("b", "me too"))
			w.wantTold("Which?" + byReply)
			if restart {
				w.must(w.stop())
				w.start()
			}
			answer := w.inMoved("a", "this")
			w.put(answer)
			left := w.d.pool.Pending(session.Of(answer))
			if len(left) != 1 || left[0].Message.Text != "me too" {
				t.Errorf("%+v wait, want the message of the other", left)
			}
			close(release)
			w.wantQuiet()
			w.wantTold("Which?"+byReply, "fine", "to b there")
			told := w.outbox("g")
			if ids := told[len(told)-1].Answers; !slices.Contains(ids, answer.ID) {
				t.Errorf("the turn answers %q, want also %s", ids, answer.ID)
			}
			w.wantAsked(2, "user: Pa (guest): hello",
				`assistant:  ask({"options":null,"question":"Which?"})`, "tool: The user answered: this")
			if n := w.d.pool.Counts(); n.Workers+n.Suspended != 0 {
				t.Errorf("%+v are left", n)
			}
		})
	}
}

// The answer to a question from before the group moved is accepted even if no other message is. A
// post to a hook does not wait for it.
func TestFullMovedGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode, w.opts.Waiting = pool.Followup, 2
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), llmtest.Say("of the post"), llmtest.Say("fine"),
			llmtest.Say("one"), llmtest.Say("two"))
		w.start()
		w.put(w.inGroup("a", "hello"))
		w.put(w.inMoved("b", "one"))
		w.put(w.inMoved("b", "two"))
		w.put(w.inMoved("b", "three"))
		post := w.inMoved("a", "news")
		post.PreviousChat, post.Origin = "", bus.Origin{Kind: bus.Hook, Label: "h"}
		w.put(post)
		w.sleep(time.Second)
		full := fmt.Sprintf(pool.SayFull, 2)
		w.wantTold("Which?"+byReply, full, "of the post")
		w.put(w.inMoved("a", "this"))
		w.wantQuiet()
		w.wantTold("Which?"+byReply, full, "of the post", "fine", "one", "two")
	})
}

// A message of the person who was asked can end the question without answering it. The gateway then
// answers the message after the turn that has asked.
func TestOtherAnswerInMovedGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), llmtest.Say("fine"), llmtest.Say("to a there"))
		w.start()
		w.put(w.inGroup("a", "hello"))
		edit := w.inMoved("a", "hello there")
		edit.Edits = "another"
		w.put(edit)
		w.wantQuiet()
		w.wantTold("Which?"+byReply, "fine", "to a there")
	})
}

// /stop in a group that has moved also ends a turn that began before the move. The messages that
// wait for that turn are dropped or get their turns.
func TestStopInMovedGroup(t *testing.T) {
	t.Parallel()
	for _, suspended := range []bool{false, true} {
		for _, role := range []bus.Role{bus.Guest, bus.User} {
			inWorld(t, func(w *world) {
				w.tools(ask.New())
				if suspended {
					w.model.Queue(asksFor("Which?"))
				} else {
					w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
				}
				w.start()
				w.put(w.inGroup("a", "one"))
				w.model.Queue(llmtest.Say("here"))
				w.put(w.inMoved("b", "two"))
				stop, want := w.inMoved("a", "/stop"), []string{"Stopped.", "here"}
				if stop.Role = role; role == bus.User {
					want = []string{"Stopped, and discarded one waiting message.", "here"}
				}
				w.put(stop)
				if role == bus.User {
					w.put(w.inMoved("b", "two again"))
				}
				w.wantQuiet()
				w.wantAnswers("g2", want...)
				if n := w.d.pool.Counts(); n.Workers+n.Suspended != 0 {
					t.Errorf("%+v are left", n)
				}
			})
		}
	}
}

// A message in a group that has moved waits for a command from before.
func TestCommandInMovedGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.opts.Commands = []command.Command{slowCommand(release)}
		w.model.Queue(llmtest.Say("hello"))
		w.start()
		w.put(w.inGroup("a", "/slow"))
		w.put(w.inMoved("a", "hello"))
		w.wantTold()
		close(release)
		w.wantQuiet()
		w.wantTold("slow", "hello")
	})
}

// startsBeside gives a sub-agent a task in a group, moves the group, and begins a turn there with a
// message and the step here of the model. When the sub-agent is ready, its outcome begins a turn of
// the session from before, with the step before. The messages of meanwhile come before that.
func (w *world) startsBeside(
	m bus.InboundMessage, here, before llmtest.Step, meanwhile ...bus.InboundMessage,
) {
	w.t.Helper()
	found := make(chan struct{})
	sub := w.spawning(ask.New(), act("look", tool.Once, always("looked")))
	w.model.Queue(spawns(false, "look"), llmtest.Say("begun"), here)
	sub.Queue(held(llmtest.Say("found"), found))
	w.start()
	hello := w.inGroup("a", "hello")
	hello.Role = bus.User
	w.put(hello)
	w.sleep(time.Minute)
	w.put(m)
	w.sleep(time.Minute)
	w.put(meanwhile...)
	w.model.Queue(before)
	close(found)
	w.sleep(time.Minute)
}

// A turn in a supergroup and one from before can run at once, if a sub-agent from before reports
// late. The answer to a question of that turn does not join the other one, and does not end it.
func TestAnswerBesideTurn(t *testing.T) {
	t.Parallel()
	for _, mode := range []pool.Mode{pool.Steer, pool.Followup, pool.Collect, pool.Interrupt} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = mode
				release := make(chan struct{})
				w.startsBeside(w.inMoved("a", "work"), held(llmtest.Say("worked"), release),
					asksFor("Which?"))
				w.model.Queue(llmtest.Say("fine"))
				w.put(w.inMoved("a", "this"))
				w.sleep(time.Minute)
				w.wantTold("begun", "Which?"+byReply, "fine")
				close(release)
				w.wantQuiet()
				w.wantTold("begun", "Which?"+byReply, "fine", "worked")
			})
		})
	}
}

// The same holds if the turn in the supergroup has asked somebody else and waits.
func TestAnswerBesideQuestion(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.startsBeside(w.inMoved("b", "work"), asksFor("How?"), asksFor("Which?"))
		w.model.Queue(llmtest.Say("fine"))
		w.put(w.inMoved("a", "this"))
		w.sleep(time.Minute)
		w.wantTold("begun", "How?"+byReply, "Which?"+byReply, "fine")
		w.model.Queue(llmtest.Say("worked"))
		w.put(w.inMoved("b", "slowly"))
		w.wantQuiet()
		w.wantTold("begun", "How?"+byReply, "Which?"+byReply, "fine", "worked")
	})
}

// If both turns have asked the same person, the answer goes to the newer question.
func TestAnswerToNewerQuestion(t *testing.T) {
	t.Parallel()
	for _, fromBefore := range []bool{false, true} {
		t.Run(fmt.Sprint(fromBefore), func(t *testing.T) {
			inWorld(t, func(w *world) {
				release := make(chan struct{})
				here, before := []string{"How?" + byReply}, []string{"begun", "Which?" + byReply}
				newer, older := &here, &before
				if fromBefore {
					newer, older = older, newer
					close(release)
				}
				w.startsBeside(w.inMoved("a", "work"), held(asksFor("How?"), release),
					asksFor("Which?"))
				if !fromBefore {
					close(release)
					w.sleep(time.Minute)
				}
				w.model.Queue(llmtest.Say("first"), llmtest.Say("second"))
				w.put(w.inMoved("a", "one"))
				w.sleep(time.Minute)
				*newer = append(*newer, "first")
				w.wantAnswers("g", before...)
				w.wantAnswers("g2", here...)
				w.put(w.inMoved("a", "two"))
				w.wantQuiet()
				*older = append(*older, "second")
				w.wantAnswers("g", before...)
				w.wantAnswers("g2", here...)
			})
		})
	}
}

// People can steer or interrupt their turn in the supergroup while a turn from before runs or waits
// for somebody else.
func TestSteerBesideTurn(t *testing.T) {
	t.Parallel()
	for _, mode := range []pool.Mode{pool.Steer, pool.Interrupt} {
		for _, asks := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, asks), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.opts.QueueMode = mode
					work, release := make(chan struct{}), make(chan struct{})
					step := asksFor("Which?")
					if !asks {
						step = held(llmtest.Say("found it"), release)
					}
					w.startsBeside(w.inMoved("b", "work"), held(uses("look"), work), step)
					w.model.Queue(llmtest.Say("worked"))
					w.put(w.inMoved("b", "the other file"))
					if mode == pool.Steer {
						close(work)
					}
					w.sleep(time.Minute)
					w.wantAnswers("g2", "worked")
					asked := w.request(5).Messages
					if text := asked[len(asked)-1].Text; !strings.Contains(text, "the other file") {
						t.Errorf("the newest message for the model is %q", text)
					}
					if asks {
						w.model.Queue(llmtest.Say("fine"))
						w.put(w.inMoved("a", "this"))
					}
					close(release)
					w.wantQuiet()
					w.wantAnswers("g2", "worked")
					if n := w.d.pool.Counts(); n.Workers+n.Suspended != 0 {
						t.Errorf("%+v are left", n)
					}
				})
			})
		}
	}
}

// A post to a hook in a supergroup does not wait until somebody has answered a question from
// before, even if the message before it does.
func TestPostBehindQuestion(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Followup
		release := make(chan struct{})
		post := w.inMoved("a", "news")
		post.PreviousChat, post.Origin = "", bus.Origin{Kind: bus.Hook, Label: "h"}
		w.startsBeside(w.inMoved("b", "work"), held(llmtest.Say("worked"), release),
			asksFor("Which?"), w.inMoved("b", "more"), post)
		w.model.Queue(llmtest.Say("of the post"))
		close(release)
		w.sleep(time.Minute)
		w.wantTold("begun", "Which?"+byReply, "worked", "of the post")
		w.model.Queue(llmtest.Say("fine"), llmtest.Say("more"))
		w.put(w.inMoved("a", "this"))
		w.wantQuiet()
		w.wantTold("begun", "Which?"+byReply, "worked", "of the post", "fine", "more")
	})
}
