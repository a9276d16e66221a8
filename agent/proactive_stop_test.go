package agent

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
)

// /stop takes effect after its transaction. A reminder that begins in between still runs.
func TestStopComesLate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		never := make(chan struct{})
		w.model.Queue(held(llmtest.Say("x"), never), llmtest.Say("Call!"), llmtest.Say("hi"))
		w.start()
		j := w.job("a", schedule.Reminder, "call mum")
		w.add(j)
		// The /stop is for a turn that has already ended.
		w.d.stops.New(w.message("a", "/stop"), command.Everything).Cancel()
		w.sleep(time.Second)
		w.wantRuns(j, "done 1")
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", "Call!", "hi")
	})
}

// A reminder waits for a running turn. If the turn then asks a question, the reminder does not
// wait for the answer.
func TestReminderBeforeTheTurnWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Rules = askFirst("exec")
		w.jobs(schedule.Options{})
		w.tools(act("exec", tool.Once, always("ran")))
		release := make(chan struct{})
		w.model.Queue(held(uses("exec"), release), llmtest.Say("Call!"), llmtest.Say("it ran"))
		w.start()
		w.say("a", "run it")
		j := w.job("a", schedule.Reminder, "call mum")
		w.add(j)
		close(release)
		w.settle()
		w.wantRuns(j, "done 1")
		w.say("a", "/approve "+w.code())
		w.wantQuiet()
		told := w.outbox("a")
		if got := told[len(told)-1].Text; got != "it ran" {
			t.Errorf("at last people were told %q", got)
		}
	})
}

// A message of a program does not wait for a suspended turn. So /stop, which ends that turn, does
// not discard it.
func TestStopWaitingTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Rules = askFirst("exec")
		w.jobs(schedule.Options{})
		w.tools(act("exec", tool.Once, always("ran")))
		w.model.Queue(uses("exec"), llmtest.Say("a parcel"))
		w.start()
		w.say("a", "run it")
		m := w.message("a", "the parcel is here")
		m.Origin = bus.Origin{Kind: bus.Hook, Label: "post"}
		w.put(m)
		w.say("a", "/stop")
		w.wantQuiet()
		told := w.outbox("a")
		if n := len(told); n != 3 || told[1].Text != "a parcel" || told[2].Text != "Stopped." {
			t.Errorf("people were told %+v", told)
		}
	})
}

// /stop also discards tasks of a job that are held back, even if the job's own turn has ended.
func TestStopTasksOfJob(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		sub := w.spawning()
		for range turn.MaxTasks {
			sub.Queue(held(llmtest.Say("never"), make(chan struct{})))
		}
		w.model.Queue(spawns(false, "1", "2", "3", "4", "5", "6"), llmtest.Say("HEARTBEAT_OK"))
		w.start()
		w.add(w.job("a", schedule.Task, "go"))
		w.sleep(time.Minute)
		if n := w.d.pool.Counts(); n.HeldBack != 1 || n.Workers != turn.MaxTasks {
			t.Fatalf("there are %+v, want the sub-agents and tasks that are held back", n)
		}
		w.say("a", "/stop")
		w.wantQuiet()
		w.wantAnswers("a", "Stopped, with 6 sub-agents.")
		if n := len(sub.Requests()); n != turn.MaxTasks {
			t.Errorf("%d sub-agents have worked, want %d", n, turn.MaxTasks)
		}
	})
}

// The outcome of a quiet job's sub-agent may be quiet, too.
func TestSilentOutcome(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.spawning().Queue(later(llmtest.Say("nothing new")), later(llmtest.Say("a leak")))
		w.model.Queue(spawns(false, "look"), llmtest.Say("HEARTBEAT_OK"),
			llmtest.Say("HEARTBEAT_OK"))
		w.start()
		j := w.job("a", schedule.Task, "go")
		w.add(j)
		w.wantQuiet()
		w.wantRuns(j, "done 1")
		w.wantAnswers("a")

		w.model.Queue(spawns(false, "look"), llmtest.Say("HEARTBEAT_OK"),
			llmtest.Say("There is a leak."))
		w.add(w.job("a", schedule.Task, "go on"))
		w.wantQuiet()
		w.wantAnswers("a", "There is a leak.")
	})
}

// A heartbeat can't start sub-agents, because a turn about their outcome would have more rights
// than the heartbeat.
func TestHeartbeatAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.spawning()
		w.heartbeats()
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("HEARTBEAT_OK"))
		w.say("a", "hello")
		w.lookAfter(memory.OfChat(at("a")), "- [ ] water the plants\n")
		w.sleep(40 * time.Minute)
		w.wantQuiet()
		for _, x := range w.request(2).Tools {
			if x.Name == "spawn" {
				t.Errorf("a heartbeat has the tool %s", x.Name)
			}
		}
	})
}

// A reminder can't be silent, even in its own session.
func TestReminderInItsOwnSession(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.model.Queue(llmtest.Say(""), llmtest.Say("Call!"))
		w.start()
		j := w.job("a", schedule.Reminder, "call mum")
		j.OwnSession = true
		w.add(j)
		w.wantQuiet()
		w.wantAnswers("a", "Call!")
		if asked := lines(w.request(1).Messages[1:]); strings.Contains(asked[0], turn.AskSilent) {
			t.Errorf("the model was told that it may be silent: %q", asked)
		}
	})
}

// A reminder can come between an interrupted turn and the message that interrupted it. The answer
// to that message also counts for the interrupted one. The reminder answers neither.
func TestReminderAfterInterruptedTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Interrupt
		w.jobs(schedule.Options{})
		never := make(chan struct{})
		w.model.Queue(held(llmtest.Say("x"), never), llmtest.Say("Call!"), llmtest.Say("ok"))
		w.start()
		w.say("a", "one")
		j := w.job("a", schedule.Reminder, "call mum")
		w.add(j)
		w.say("a", "two")
		w.wantQuiet()
		w.wantAnswers("a", "Call!", "ok")
		told := w.outbox("a")
		if len(told[0].Answers) != 0 || strings.Join(told[1].Answers, " ") != "1 3" {
			t.Errorf("the reminder is for %q, the answer for %q", told[0].Answers, told[1].Answers)
		}
	})
}

// If a person begins a new conversation while a reminder runs, the reminder is repeated in the
// new conversation.
func TestNewWhileReminderRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		never := make(chan struct{})
		w.model.Queue(held(llmtest.Say("x"), never), llmtest.Say("Call!"))
		w.start()
		j := w.job("a", schedule.Reminder, "call mum")
		w.add(j)
		w.say("a", "/new")
		w.wantQuiet()
		w.wantAnswers("a", "A new conversation begins.", "Call!")
		w.wantRuns(j, "done 2")
	})
}

// A person can write while the agent reports the outcome of a job's sub-agent. Later tool calls
// of that turn then count as requested by a person.
func TestAskedMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		var unasked []bool
		release := make(chan struct{})
		where := act("where", tool.Once, nil)
		where.Run = func(_ context.Context, c tool.Call) (tool.Result, error) {
			unasked = append(unasked, c.Proactive)
			<-release
			return tool.Result{Text: "here"}, nil
		}
		w.spawning(where).Queue(llmtest.Say("a leak"))
		w.model.Queue(spawns(false, "look"), llmtest.Say("I look."), uses("where"), uses("where"),
			llmtest.Say("There is a leak, and I will."))
		w.start()
		j := w.job("a", schedule.Task, "go")
		j.OwnSession = false
		w.add(j)
		w.say("a", "remind me of it")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "I look.", "There is a leak, and I will.")
		if len(unasked) != 2 || !unasked[0] || unasked[1] {
			t.Errorf("the calls were unasked: %v, want the first one only", unasked)
		}
	})
}

// If a job fails after somebody has answered its question, they are told so at once, because their
// message gets no other answer. Then the job is done again.
func TestFailingJobThatAsked(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), llmtest.Step{Err: &llm.Error{Kind: llm.Overloaded}},
			llmtest.Say("Drink tea!"))
		w.start()
		j := w.job("a", schedule.Reminder, "drink")
		w.add(j)
		answer := w.message("a", "tea")
		w.put(answer)
		w.sleep(2 * time.Minute)
		failed := turn.ErrorText(&llm.Error{Kind: llm.Overloaded})
		want := []string{"Which? []",
			failed + "\n\nI will do the job “look” again by myself. [" + answer.ID + "]", "Drink tea! []"}
		if got := w.answered("a"); !slices.Equal(got, want) {
			t.Errorf("the chat was told %q, want %q", got, want)
		}
		w.wantRuns(j, "done 2")
		w.wantQuiet()
	})
}

// If the members of a group have conversations of their own, posts to hooks are answered in another
// session. /stop also ends a turn there, with the sub-agent for which it waits.
func TestStopEndsPostBesideSpeakers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.scope(bus.PerSpeaker)
		sub := w.spawning()
		w.model.Queue(spawns(true, "look"))
		sub.Queue(held(llmtest.Say("found"), make(chan struct{})))
		w.start()
		post := w.inGroup("", "news")
		post.Role, post.Origin = bus.User, bus.Origin{Kind: bus.Hook, Label: "h"}
		w.put(post)
		w.sleep(time.Minute)
		stop := w.inGroup("a", "/stop")
		stop.Role = bus.Owner
		w.put(stop)
		w.wantQuiet()
		w.wantTold("Stopped, with one sub-agent, with one job.")
		if n := w.d.pool.Counts(); n != (pool.Counts{}) {
			t.Errorf("%+v are left", n)
		}
	})
}

// /stop keeps a post that waits for the turn of another one, in whichever session that is.
func TestStopKeepsNextPost(t *testing.T) {
	t.Parallel()
	for _, scope := range []bus.SessionScope{bus.PerChat, bus.PerSpeaker} {
		t.Run(string(scope), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.scope(scope)
				w.model.Queue(held(llmtest.Say("of the post"), make(chan struct{})),
					llmtest.Say("of the next post"))
				w.start()
				for _, text := range []string{"news", "more news"} {
					post := w.inGroup("", text)
					post.Role, post.Origin = bus.User, bus.Origin{Kind: bus.Hook, Label: "h"}
					w.put(post)
				}
				stop := w.inGroup("a", "/stop")
				stop.Role = bus.Owner
				w.put(stop)
				w.wantQuiet()
				told := w.outbox("g")
				if last := told[len(told)-1].Text; last != "of the next post" {
					t.Errorf("at last people were told %q", last)
				}
			})
		})
	}
}
