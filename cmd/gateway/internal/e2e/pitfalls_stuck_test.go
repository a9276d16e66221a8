package e2e

import (
	"fmt"
	"strings"
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
	for chat := range int64(chats) {
		if n := len(w.texts(chat + 1)); n != 1 {
			t.Errorf("chat %d has %d answers", chat+1, n)
		}
	}
}

func TestSlowTypingDelaysNoAnswer(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, worldOptions{channel: streaming,
		answer: func(r openaitest.Request) openaitest.Reply {
			w.holdUntil("the typing indicator", func() bool {
				return w.telegram.Hits(telegramtest.Hang, chatIn(r)) > 0
			})
			return repeat(r)
		}})
	w.telegram.Inject(telegramtest.Fault{
		Method: "sendChatAction", Effect: telegramtest.Hang})
	w.run()
	const chats = 8 // the gateway sets this many indicators at once
	for chat := range int64(chats) {
		w.telegram.Say(chat+1, chat+1, fmt.Sprint("hello from ", chat+1))
	}
	meanwhile := 0
	for chat := range int64(chats) {
		w.expect(chat+1, fmt.Sprint("you said hello from ", chat+1))
		meanwhile += w.telegram.History(chat + 1)[0].Hanging
	}
	// On a very slow machine, all indicators can time out before the answers come. Then meanwhile is
	// 0 although nothing is wrong.
	if meanwhile == 0 {
		t.Errorf("none of %d answers came while the typing indicator was being set", chats)
	}
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
