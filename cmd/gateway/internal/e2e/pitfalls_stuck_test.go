package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// This file has the tests about chats that block each other. The table in pitfalls_test.go says
// what they check.

func TestHelpWhileAllSlotsAreBusy(t *testing.T) {
	t.Parallel()
	h := newHold()
	defer h.release()
	w := newWorld(t, worldOptions{agent: "slots = 1",
		answer: func(r openaitest.Request) openaitest.Reply {
			h.wait()
			return repeat(r)
		}})
	w.run()
	w.telegram.Say(1, 1, "one")
	until(t, "the model to be asked", h.reached)
	w.telegram.Say(2, 2, "two")
	for _, chat := range []int64{1, 2, 3} {
		w.telegram.Say(chat, chat, "/help")
		w.await("/help in a busy gateway", func() bool {
			texts := w.texts(chat)
			return len(texts) == 1 && strings.Contains(texts[0], "/status")
		})
	}
	h.release()
	for chat, want := range map[int64]string{1: "you said one", 2: "you said two"} {
		w.await(want, func() bool {
			texts := w.texts(chat)
			return len(texts) == 2 && texts[1] == want
		})
	}
}

func TestThousandsOfChats(t *testing.T) {
	t.Parallel()
	chats := few(5000)
	l := newLedger()
	w := newWorld(t, worldOptions{agent: fmt.Sprint("slots = ", chats), onSend: l.onSend,
		answer: func(r openaitest.Request) openaitest.Reply {
			reply := l.answer(r)
			reply.First = 100 * time.Millisecond
			return reply
		}})
	var list []telegramtest.Message
	for chat := range int64(chats) {
		list = append(list, l.message(chat+1, 0))
	}
	w.telegram.Deliver(list...)
	p := w.start()
	l.await(t, 0, p.done)
	p.kill()
	uncertain := w.uncertain()
	for chat := int64(1); chat <= int64(chats); chat++ {
		if n := len(w.texts(chat)); n < 1 || n > 1+uncertain[chat] {
			t.Errorf("chat %d has %d answers; the outcome of %d attempts is unknown",
				chat, n, uncertain[chat])
		}
	}
}

func TestSlowTypingDelaysNoAnswer(t *testing.T) {
	t.Parallel()
	const chats = 8 // the gateway sets this many indicators at once
	var w *world
	var seen [chats + 1]atomic.Int64 // indicators before the newest message, by chat
	w = newWorld(t, worldOptions{channel: streaming,
		answer: func(r openaitest.Request) openaitest.Reply {
			chat := chatIn(r)
			w.holdUntil("the typing indicator", func() bool {
				return int64(w.telegram.Hits(telegramtest.Hang, chat)) > seen[chat].Load()
			})
			return repeat(r)
		}})
	w.telegram.Inject(telegramtest.Fault{
		Method: "sendChatAction", Effect: telegramtest.Hang})
	w.run()
	// On a very slow machine, all indicators can time out before the answers come.
	const rounds = 5
	var want [chats + 1][]string
	for round := range rounds {
		for chat := int64(1); chat <= chats; chat++ {
			seen[chat].Store(int64(w.telegram.Hits(telegramtest.Hang, chat)))
			w.telegram.Say(chat, chat, fmt.Sprintf("hello %d from %d", round, chat))
		}
		meanwhile := 0
		for chat := int64(1); chat <= chats; chat++ {
			want[chat] = append(want[chat], fmt.Sprintf("you said hello %d from %d", round, chat))
			w.expect(chat, want[chat]...)
			meanwhile += w.telegram.History(chat)[round].Hanging
		}
		if meanwhile > 0 {
			return
		}
	}
	t.Errorf("none of %d answers came while the typing indicator was being set", rounds*chats)
}

func TestBlockedChatStallsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	const blocked, chats = 1, 20
	w.telegram.AddUser(telegramtest.User{ID: blocked, First: "A"})
	w.telegram.Refuse(blocked, "bot was blocked by the user")
	stop := w.run()
	for range 3 {
		w.telegram.Say(blocked, blocked, "hello")
	}
	for chat := range int64(chats) {
		w.telegram.Say(chat+2, chat+2, fmt.Sprintf("hello from %d", chat+2))
	}
	for chat := range int64(chats) {
		w.expect(chat+2, fmt.Sprintf("you said hello from %d", chat+2))
	}
	stop()
	w.look(func(db *store.DB) {
		if n := w.count(db, "outbox WHERE state = 'dead'"); n == 0 {
			t.Error("what could not be delivered does not lie in the dead letters")
		}
		if n := w.count(db, "outbox WHERE state IN ('waiting', 'sending')"); n > 0 {
			t.Errorf("%d messages still wait", n)
		}
	})
}
