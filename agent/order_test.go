package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/bus"
)

// echo answers with the last message, after a delay that depends on its text. So messages
// overtake each other unless the dispatcher keeps them in order.
func echo(r llm.Request) llmtest.Step {
	text := strings.TrimPrefix(r.Messages[len(r.Messages)-1].Text, stamp)
	s := llmtest.Say("re: " + text)
	for _, c := range text {
		s.Delay += time.Duration(c%7) * 100 * time.Millisecond
	}
	return s
}

// Pitfall: "a semaphore without per-chat order: two messages of one chat race".
func TestOrderWithinAndBesideSessions(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const chats, each = 20, 8
		var running, most atomic.Int64
		w.model = llmtest.Func("echo", func(r llm.Request) llmtest.Step {
			most.Store(max(most.Load(), running.Add(1)))
			return echo(r)
		})
		w.deps.Model = ending{w.model, func() { running.Add(-1) }}
		w.opts.QueueMode = pool.Followup
		w.start()
		want := make([][]string, chats)
		for i := range each {
			for c := range chats {
				text := fmt.Sprintf("%d of %d", i, c)
				w.put(w.message(fmt.Sprint(c), text))
				want[c] = append(want[c], "re: "+text)
			}
		}
		w.wantQuiet()
		for c := range chats {
			w.wantAnswers(fmt.Sprint(c), want[c]...)
		}
		if got := most.Load(); got != chats {
			t.Errorf("at most %d sessions ran side by side, want all %d", got, chats)
		}
	})
}

// Messages that are accepted in one transaction are answered in order. A message that is put
// twice is answered once.
func TestOrderOfOneCommit(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.deps.Model = llmtest.Func("echo", echo)
		w.opts.QueueMode = pool.Followup
		first, second := w.message("a", "xx"), w.message("a", "")
		w.put(first, second, first)
		w.start()
		w.put(second)
		w.sleep(time.Hour)
		w.wantAnswers("a", "re: xx", "re: ")
	})
}

// Pitfall: "one slow chat stops all".
func TestSlowChatDelaysNoOther(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("slow"), release), llmtest.Say("fast"))
		w.start()
		w.say("a", "hello")
		w.say("b", "hello")
		w.wantAnswers("b", "fast")
		w.wantAnswers("a")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "slow")
	})
}

// Pitfall: "/help has no answer while all slots are busy".
func TestSlots(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		for range 5 {
			w.model.Queue(held(llmtest.Say("done"), release))
		}
		w.opts.Slots = 2
		w.start()
		chats := []string{"a", "b", "c", "d", "e"}
		for _, chat := range chats {
			w.say(chat, "hello")
		}
		if got := w.model.Running(); got != 2 {
			t.Errorf("%d model calls at once, want the 2 that there are slots for", got)
		}
		for _, chat := range []string{"a", "e", "other"} {
			w.say(chat, "/queue")
			if told := w.outbox(chat); len(told) != 1 {
				t.Errorf("/queue in chat %s has %d answers while all slots are busy", chat, len(told))
			}
		}
		close(release)
		w.wantQuiet()
		for _, chat := range chats {
			told := w.outbox(chat)
			if got := told[len(told)-1].Text; got != "done" {
				t.Errorf("chat %s was told %q in the end, want its answer", chat, got)
			}
		}
	})
}

// A tool that runs for a long time holds no slot.
func TestToolHoldsNoSlot(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.tools(act("look", tool.Pure, until(release, "seen")))
		w.model.Queue(uses("look"), llmtest.Say("other"), llmtest.Say("first"))
		w.opts.Slots = 1
		w.start()
		w.say("a", "look!")
		w.say("b", "hello")
		w.wantAnswers("b", "other")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "first")
	})
}

// The inbox is read in pages. Messages beyond the first page are handed out as well. A message
// whose wake-up was lost is found a little later.
func TestLongInboxAndLostWakeUp(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.deps.Model = llmtest.Func("echo", echo)
		const chats = 600
		for c := range chats {
			w.put(w.message(fmt.Sprint(c), "hi"))
		}
		w.start()
		w.sleep(time.Minute)
		w.deps.Inbox = bus.NewInbox() // put no longer wakes the dispatcher
		w.wantAnswers("599", "re: hi")
		w.put(w.message("0", "again"))
		w.sleep(3 * pollInterval)
		w.wantAnswers("0", "re: hi", "re: again")
		if n := w.count("SELECT count(*) FROM outbox"); n != chats+1 {
			t.Errorf("%d answers, want %d", n, chats+1)
		}
	})
}

// An answer in a group quotes the message that it answers. An answer in a direct chat does not.
func TestQuotesInGroupsOnly(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.deps.Model = llmtest.Func("echo", echo)
		w.start()
		direct, group := w.message("a", "one"), w.message("g", "two")
		group.Group = true
		command := w.message("g", "/queue")
		command.Group = true
		w.put(direct, group, command)
		w.sleep(time.Minute)
		var quoted []string
		for _, m := range slices.Concat(w.outbox("a"), w.outbox("g")) {
			quoted = append(quoted, m.ReplyTo)
		}
		if want := []string{"", command.ID, group.ID}; !slices.Equal(quoted, want) {
			t.Errorf("answers quote %q, want %q", quoted, want)
		}
	})
}
