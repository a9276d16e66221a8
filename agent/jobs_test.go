package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/agent/schedule"
	"gateway/bus"
)

// lastSay returns the last message to a chat.
func (w *world) lastSay(chat string) bus.OutboundMessage {
	w.t.Helper()
	told := w.outbox(chat)
	if len(told) == 0 {
		w.t.Fatalf("chat %s was told nothing", chat)
	}
	return told[len(told)-1]
}

// wantSay sends a command and checks that the answer contains want.
func (w *world) wantSay(chat, command, want string) {
	w.t.Helper()
	w.say(chat, command)
	if got := w.lastSay(chat).Text; !strings.Contains(got, want) {
		w.t.Errorf("%s: told %q, want %q", command, got, want)
	}
}

func TestRemind(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.start()
		w.wantSay("a", "/remind", "Tell me when")
		w.wantSay("a", "/remind me", "does not begin with a time")
		w.wantSay("a", "/remind in 20m", "What should I remind you of?")
		w.wantSay("a", "/remind every 5s to drink", "too often")
		w.wantSay("a", "/remind in 20m to "+strings.Repeat("x", 9000), "I can't do that: the")
		w.wantSay("a", "/timezone Asia/Kathmandu", "The time zone here is Asia/Kathmandu now; it "+
			"is Sat 2000-01-01 05:45 +0545")
		w.wantSay("a", "/timezone", "The time zone here is Asia/Kathmandu;")
		w.wantSay("a", "/timezone Asia/Katmando", "did you mean")
		w.wantSay("b", "/timezone", "The time zone here is UTC;")
		w.wantSay("a", "/remind tomorrow 9:00 to call mum",
			"I will remind you Sun 2000-01-02 09:00 +0545: call mum\n\nThat is job 1.")
		buttons := w.lastSay("a").Buttons
		if len(buttons) != 1 || buttons[0].Text != "/jobs remove 1" {
			t.Errorf("buttons %+v, want one that removes the job", buttons)
		}
		w.model.Queue(llmtest.Say("Call mum!"))
		w.wantSay("a", "/jobs remove 1", "is removed")
		w.wantSay("a", "/remind 5:48 to call mum", "remind you Sat 2000-01-01 05:48 +0545")
		w.sleep(3 * time.Minute)
		if got := w.lastSay("a").Text; got != "Call mum!" {
			t.Errorf("told %q, want the reminder", got)
		}
		w.wantSay("a", "/jobs", "There are no jobs.")
	})
}

func TestJobsCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{Store: schedule.Store{MaxJobs: 6}})
		w.start()
		w.wantSay("a", "/jobs", "There are no jobs.")
		for i := range 6 {
			w.wantSay("a", fmt.Sprintf("/remind every %dh to drink", i+1), "I will remind you")
		}
		w.wantSay("a", "/remind every 1h to eat", "I can't do that: there are 6 jobs")
		w.wantSay("a", "/jobs",
			"- 1: **drink** (reminder), every 1h; next Sat 2000-01-01 01:00 UTC\n")
		if n := len(w.lastSay("a").Buttons); n != 2*4 {
			t.Errorf("%d buttons, want %d", n, 2*4)
		}
		w.wantSay("a", "/jobs show 1", "Job 1, **drink** (reminder), every 1h")
		w.wantSay("a", "/jobs pause 1", "Job 1, **drink**: paused.")
		if got := w.lastSay("a").Buttons[0].Text; got != "/jobs resume 1" {
			t.Errorf("the button of a paused job sends %q", got)
		}
		w.wantSay("a", "/jobs resume 1", "Job 1, **drink**: next Sat 2000-01-01 01:00 UTC.")
		w.model.Queue(llmtest.Say("Drink!"))
		w.say("a", "/jobs run 1")
		w.settle()
		if got := w.lastSay("a").Text; got != "Drink!" {
			t.Errorf("told %q, want what the job says", got)
		}
		w.wantSay("a", "/halt", "Halted")
		w.wantSay("a", "/jobs run 2",
			"Job 2, **drink**, runs when somebody ends the halt with `/resume`.")
		w.wantSay("a", "/resume", "I answer again")
		w.wantSay("a", "/jobs remove 1", "Job 1, **drink**, is removed.")
		w.wantSay("a", "/jobs remove 1", "There is no job 1 here")
		for _, args := range []string{"remove", "remove x", "delete 2", "show 2 3"} {
			w.wantSay("a", "/jobs "+args, "Use `/jobs` for the list")
		}
		w.wantSay("b", "/jobs show 2", "There is no job 2 here") // of another conversation
		w.wantSay("b", "/jobs remove 2", "There is no job 2 here")
	})
}

// In a group everybody sees the jobs. A member can change only their own, and an admin can change
// all.
func TestJobsOfOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.jobs(schedule.Options{})
		w.start()
		from := func(id string, role bus.Role, text string) {
			m := w.message("g", text)
			m.Group, m.Sender.ID, m.Role = true, id, role
			w.put(m)
		}
		from("7", bus.User, "/remind every 2h to drink")
		from("8", bus.User, "/jobs remove 1")
		if got := w.lastSay("g").Text; got != othersJob {
			t.Errorf("another one is told %q", got)
		}
		from("8", bus.User, "/jobs show 1")
		if got := w.lastSay("g").Text; !strings.HasPrefix(got, "Job 1, **drink**") {
			t.Errorf("another one is shown %q", got)
		}
		from("9", bus.Admin, "/jobs remove 1")
		if got := w.lastSay("g").Text; got != "Job 1, **drink**, is removed." {
			t.Errorf("an admin is told %q", got)
		}
	})
}

const (
	othersJob = "Only the person who set up job 1, or an admin, can do that."
	noJobs    = "There are no jobs here: the gateway runs without a scheduler."
)

func TestNoJobs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		for _, command := range []string{"/jobs", "/remind in 1m to x", "/timezone"} {
			w.wantSay("a", command, noJobs)
		}
	})
}
