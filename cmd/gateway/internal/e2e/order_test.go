package e2e

import (
	"fmt"
	"slices"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// Settings of TestOrder. Until all other chats have their answers, the model delays the answers
// to slowChat, and Telegram limits limitedChat.
const (
	orderChats  = 200
	slowChat    = 201
	limitedChat = 202
	orderAtOnce = 32 // model calls that must run at once before the first answer
)

// orderTexts returns the number of messages that each person of TestOrder writes.
func orderTexts() int {
	if *long {
		return 50
	}
	return 8
}

// TestOrder checks that all messages of many people, sent at once, are answered in order, and
// that no chat waits for another. The model answers only when many chats are served concurrently.
func TestOrder(t *testing.T) {
	t.Parallel()
	l := newLedger()
	slow, many := newHold(), newHold()
	w := newWorld(t, worldOptions{
		onSend: l.onSend, agent: "queue_mode = \"followup\"\nwaiting = 1000\nslots = 128",
		answer: func(r openaitest.Request) openaitest.Reply {
			busy, leave := l.enter()
			defer leave()
			if busy == orderAtOnce {
				many.release()
			}
			many.wait()
			if asked, _ := question(r.Messages); chatOf(asked[0]) == slowChat {
				slow.wait()
			}
			return l.answer(r)
		},
	})
	defer slow.release() // the model's server can't close while a reply waits
	defer many.release()
	lift := w.telegram.Inject(telegramtest.Fault{
		Method: "sendMessage", Chat: limitedChat, RetryAfter: 1})
	var list []telegramtest.Message
	for range orderTexts() {
		for chat := range int64(limitedChat) {
			list = append(list, l.message(chat+1, 0))
		}
	}
	w.telegram.Deliver(list...)
	p := w.start()
	p.ready()

	l.await(t, orderChats*orderTexts(), p.done)
	for _, chat := range []int64{slowChat, limitedChat} {
		if n := len(w.telegram.History(chat)); n > 0 {
			t.Errorf("chat %d had %d answers although it was held", chat, n)
		}
	}
	if n := w.telegram.Hits(telegramtest.Answer, limitedChat); n == 0 {
		t.Error("the limited chat was never refused")
	}
	slow.release()
	lift()
	l.await(t, 0, p.done)
	p.kill()
	uncertain := w.uncertain()
	for chat := int64(1); chat <= limitedChat; chat++ {
		checkTexts(t, w, chat, uncertain[chat])
	}
	t.Logf("%d model calls at once, %d in all", l.overlap, l.calls)
}

// uncertain returns, by chat on Telegram, the number of attempts whose outcome is unknown. If the
// reply to an answer does not come within the time limit, the gateway can't know whether Telegram
// has sent the answer, and sends it again. That happens if the machine stands still.
func (w *world) uncertain() map[int64]int {
	w.t.Helper()
	attempts := make(map[int64]int)
	w.look(func(db *store.DB) {
		var chat int64
		var n int
		for range w.query(db, []any{&chat, &n},
			"SELECT CAST(chat AS INTEGER), sum(uncertain) FROM outbox GROUP BY chat") {
			attempts[chat] = n
		}
	})
	return attempts
}

// checkTexts checks that a chat shows the answer to each of its messages once and in order. An
// answer may be repeated at once for each attempt whose outcome is unknown.
func checkTexts(t *testing.T, w *world, chat int64, uncertain int) {
	t.Helper()
	shown := w.texts(chat)
	texts := slices.Compact(slices.Clone(shown))
	if n := len(shown); len(texts) != orderTexts() || n > orderTexts()+uncertain {
		t.Errorf("chat %d has %d answers, want %d; the outcome of %d attempts is unknown",
			chat, n, orderTexts(), uncertain)
		return
	}
	for i, text := range texts {
		if want := fmt.Sprintf("answer to m%d-%dr0", chat, i+1); text != want {
			t.Errorf("chat %d, answer %d: %q, want %q", chat, i+1, text, want)
			return
		}
	}
}

// chatOf returns the chat whose message has the mark m, such as m7-1r0.
func chatOf(m string) (chat int) {
	_, err := fmt.Sscanf(m, "m%d-", &chat)
	if err != nil {
		panic(err) // m is not a mark
	}
	return chat
}

// enter counts a model call as running until leave is called. It returns the number of running
// calls.
func (l *ledger) enter() (busy int, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy++
	l.overlap = max(l.overlap, l.busy)
	return l.busy, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.busy--
	}
}
