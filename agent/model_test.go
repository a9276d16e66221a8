package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/prompt"
	"gateway/agent/schedule"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
)

// choose gives the world a second model, "Small", besides "main", and returns it.
func (w *world) choose() *llmtest.Model {
	small := llmtest.New("Small")
	w.opts.ModelID, w.opts.ModelName = "main", "main (big-1), then spare"
	w.opts.MaxOutput, w.opts.ContextWindow = 4000, 100_000
	w.opts.Choices = []turn.Choice{
		{Model: checked{w.model, w.t}, ID: "main", Name: "main (big-1), then spare", MaxOutput: 4000,
			ContextWindow: 100_000},
		{Model: checked{small, w.t}, ID: "Small", Name: "Small", MaxOutput: 500, NoImages: true,
			ContextWindow: 9000},
	}
	return small
}

const (
	modelList = " Admins can change it with `/model NAME`:\n\n" +
		"- `main` (big-1), then spare\n- `Small`"
	modelIsMain  = "The model here is `main` (big-1), then spare: the default." + modelList
	modelIsSmall = "The model here is `Small`: chosen for this conversation; the default is " +
		"`main`." + modelList
	modelSet = "This conversation uses the model `Small` from its next answer on. `/model default` " +
		"undoes that."
)

// The choices of a group apply under its new address, from the first message there, even if that
// message is a command. They survive a restart.
func TestChoicesMove(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"hello", "/model"} {
		inWorld(t, func(w *world) {
			small := w.choose()
			w.start()
			w.say("a", "/model small", "/queue collect")
			small.Queue(llmtest.Say("one"), llmtest.Say("two"))
			moved := func(text string) bus.InboundMessage {
				m := w.message("b", text)
				m.Group, m.PreviousChat = true, "a"
				return m
			}
			w.put(moved(first))
			w.sleep(time.Minute)
			told := []string{map[string]string{"hello": "one", "/model": modelIsSmall}[first]}
			w.wantAnswers("b", told...)
			w.must(w.stop())
			w.start()
			w.put(moved("/queue"), moved("/model default"), moved("/model"))
			w.settle()
			w.wantAnswers("b", append(told, fmt.Sprintf(whichQueue, "collect"), "The model of "+
				"this conversation is the default "+
				"again, which is `main` now.", modelIsMain)...)
			w.say("a", "/model")
			if got := w.lastSay("a").Text; got != modelIsMain {
				t.Errorf("the old address is told %q, want %q", got, modelIsMain)
			}
		})
	}
}

// A model with the name "default" can be chosen, although "/model default" otherwise undoes a
// choice. "/model the-default" then undoes it.
func TestModelCalledDefault(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		w.opts.Choices[1].ID, w.opts.Choices[1].Name = "default", "default"
		w.start()
		small.Queue(llmtest.Say("one"))
		w.model.Queue(llmtest.Say("two"))
		w.say("a", "/model Default", "hello")
		w.settle()
		w.wantAnswers("a", "This conversation uses the model `default` from its next answer on. "+
			"`/model the-default` undoes that.", "one")
		w.say("a", "/model the-default", "hello")
		w.settle()
		if got := w.lastSay("a").Text; got != "two" {
			t.Errorf("the answer is %q, want that of the default model", got)
		}
	})
	inWorld(t, func(w *world) { // as usual, if it is the default model
		w.choose()
		w.opts.Choices[0].ID, w.opts.ModelID = "default", "default"
		w.start()
		w.say("a", "/model small", "/model default")
		w.wantAnswers("a", modelSet, "The model of this conversation is the default again, which is "+
			"`default` now.")
	})
}

func TestModelCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		w.start()
		w.model.Queue(llmtest.Say("one"), llmtest.Say("of b"), llmtest.Say("three"))
		small.Queue(llmtest.Say("two"))
		w.say("a", "/model", "hello", "/model small", "/model")
		told := []string{modelIsMain, "one", modelSet, modelIsSmall}
		w.wantAnswers("a", told...)

		w.must(w.stop()) // the choice survives a restart
		w.start()
		w.say("b", "another conversation", "/model")
		w.wantAnswers("b", "of b", modelIsMain)
		w.say("a", "again", "/model DEFAULT", "/model", "and again")
		w.wantQuiet()
		w.wantAnswers("a", append(told, "two", "The model of this conversation is the default again, "+
			"which is `main` now.", modelIsMain, "three")...)
		if r := small.Requests()[0]; r.MaxOutput != 500 {
			t.Errorf("the chosen model may answer with %d tokens, want its own 500", r.MaxOutput)
		}
		w.must(w.stop()) // so does its removal
		w.start()
		w.say("a", "/model")
		w.wantSay("a", "/model", modelIsMain)
		wantLines(t, "usage by model", w.column("SELECT kind || ' ' || key || ' ' || calls FROM usage "+
			"WHERE kind = 'model' ORDER BY key"), []string{"model Small 1", "model scripted 3"})
	})
}

// Only people who may press buttons get them. The buttons lead to the models that are not in use.
func TestModelButtons(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.choose()
		long := strings.Repeat("l", 64)
		w.opts.Choices = append(w.opts.Choices, turn.Choice{ID: long, Name: long})
		w.start()
		buttons := func(role bus.Role) (list []string) {
			m := w.message("a", "/model")
			m.Role = role
			w.put(m)
			for _, b := range w.lastSay("a").Buttons {
				list = append(list, b.Label+" sends "+b.Text)
			}
			return list
		}
		wantLines(t, "buttons for a user", buttons(bus.User), nil)
		wantLines(t, "buttons for an admin", buttons(bus.Admin), []string{"Small sends /model Small"})
		w.say("a", "/model Small")
		wantLines(t, "buttons later", buttons(bus.Owner),
			[]string{"main sends /model main", "default sends /model default"})
	})
}

func TestModelRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.choose()
		w.start()
		for role, want := range map[bus.Role]string{
			bus.Guest: "Only users, admins and owners can use `/model`.",
			bus.User: "Only admins and owners can choose the model. `/model` shows which one " +
				"answers here.",
			bus.Admin: modelSet,
		} {
			m := w.message(string(role), "/model Small")
			m.Role = role
			w.put(m)
			w.wantAnswers(string(role), want)
		}
		w.wantSay("a", "/model smal", "There is no model `smal`. Did you mean `Small`?\n\n"+modelIsMain)
		w.wantSay("a", "/model small main", "There is no model `small main`.\n\n"+modelIsMain)
	})
}

// A running turn keeps its model. Messages that wait for it get the new model.
func TestModelDuringTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		w.opts.QueueMode = pool.Followup
		w.tools(act("look", tool.Pure, always("seen")))
		release := make(chan struct{})
		w.model.Queue(held(uses("look"), release), llmtest.Say("main has seen it"))
		small.Queue(llmtest.Say("I am small"))
		w.start()
		w.say("a", "look", "/model Small", "who are you?")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", modelSet, "main has seen it", "I am small")
	})
}

// If the chosen model is no longer configured, the conversation uses the default and says so. If
// it is configured again, the conversation uses it again.
func TestModelGone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		w.start()
		w.say("a", "/model Small")
		less := w.opts
		less.Choices = less.Choices[:1]
		w.d.Configure(w.model, nil, less.Settings)
		w.model.Queue(llmtest.Say("main answers"))
		w.say("a", "hello")
		gone := "The model here is `main` (big-1), then spare: the default, because `Small`, which " +
			"was chosen for this conversation, is no longer configured." +
			strings.TrimSuffix(modelList, "\n- `Small`")
		w.wantSay("a", "/model", gone)
		if b := w.lastSay("a").Buttons; len(b) != 1 || b[0].Text != "/model default" {
			t.Errorf("buttons %v, want the default only", b)
		}
		w.d.Configure(w.model, nil, w.opts.Settings)
		small.Queue(llmtest.Say("here I am again"))
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", modelSet, "main answers", gone, "here I am again")
	})
}

// Sub-agents of a conversation and jobs in its session use the model of the conversation. A job
// in its own session uses the configured model.
func TestModelBelow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		sub := w.spawning()
		w.opts.Choices[1].Model = checked{byTask{small, sub}, t}
		w.jobs(schedule.Options{})
		w.start()
		small.Queue(spawns(true, "dig"), llmtest.Say("dug"), llmtest.Say("Call your mum!"))
		sub.Queue(llmtest.Say("a hole"))
		w.model.Queue(llmtest.Say("all is green"))
		w.say("a", "/model Small", "have it dug")
		w.add(w.job("a", schedule.Reminder, "call mum"))
		w.add(w.job("a", schedule.Task, "look at the build"))
		w.wantQuiet()
		w.wantAnswers("a", modelSet, "dug", "Call your mum!", "all is green")
		if n := small.Left() + sub.Left(); n != 0 {
			t.Errorf("%d steps of the chosen model are left, want none", n)
		}
	})
}

// A reminder that is due while a turn waits for an answer uses the model of the conversation, and
// so do its sub-agents.
func TestModelBesideSuspended(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		sub := w.spawning(ask.New())
		w.opts.Choices[1].Model = checked{byTask{small, sub}, t}
		w.jobs(schedule.Options{})
		w.start()
		small.Queue(asksFor("Which?", "red", "blue"), spawns(false, "look her number up"),
			llmtest.Say("I look her number up."), llmtest.Say("Call your mum!"),
			llmtest.Say("Blue it is."))
		sub.Queue(llmtest.Say("it is 5"))
		w.say("a", "/model Small", "paint it")
		w.add(w.job("a", schedule.Reminder, "call mum"))
		if told := w.lastSay("a").Text; told != "Call your mum!" {
			t.Errorf("told %q, want the reminder by the chosen model", told)
		}
		w.say("a", "blue")
		w.wantQuiet()
		if told := w.lastSay("a").Text; told != "Blue it is." {
			t.Errorf("told %q, want the answer of the chosen model", told)
		}
	})
}

// The window of the chosen model applies: a conversation with a large-window model is shortened
// for a small-window model.
func TestModelWindow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		w.start()
		for i := range 6 {
			w.model.Queue(llmtest.Say(strings.Repeat(fmt.Sprintf("answer %d ", i), 1200)))
			w.say("a", "tell me more")
		}
		small.Queue(llmtest.Say("short"))
		w.say("a", "/model Small", "and now?")
		w.wantQuiet()
		budget := w.d.pool.ConfigOf(named("test/a")).ContextBudget()
		requests := small.Requests()
		if len(requests) != 1 {
			t.Fatalf("the small model was asked %d times, want once", len(requests))
		}
		n := w.d.env.Calls.Estimates.Tokens("Small", prompt.TextSize(requests[0].Messages))
		if n > budget {
			t.Errorf("the small model was asked with %d tokens, want %d at most", n, budget)
		}
		status := w.ask("a", "/status")
		for _, want := range []string{"- Model: Small\n", fmt.Sprintf(" of %d tokens\n", budget)} {
			if !strings.Contains(status, want) {
				t.Errorf("/status lacks %q:\n%s", want, status)
			}
		}
	})
}

// ask sends a command and returns its answer.
func (w *world) ask(chat, command string) string {
	w.say(chat, command)
	return w.lastSay(chat).Text
}

// A model that understands no images gets no images.
func TestModelWithoutImages(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		small := w.choose()
		w.withFiles()
		w.start()
		w.model.Queue(llmtest.Say("I see it"))
		small.Queue(llmtest.Say("no eyes"))
		w.put(carrying(w.message("a", "look"), photo("a.png")))
		w.say("a", "/model Small")
		w.put(carrying(w.message("a", "look"), photo("b.png")))
		w.wantQuiet()
		for i, want := range []int{1, 0} {
			r := append(w.model.Requests(), small.Requests()...)[i]
			if loaded, _ := images(r); loaded != want {
				t.Errorf("request %d has %d images, want %d", i+1, loaded, want)
			}
		}
	})
}
