package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// The chats of TestOrder. The model holds the slow one, and Telegram limits the other, until all
// others have all their answers.
const (
	orderChats   = 200
	orderTexts   = 50
	slowChat     = 201
	limitedChat  = 202
	orderLatency = 10 * time.Millisecond // of the model
)

// TestOrder lets many people write much at once to a slow model. Each gets an answer to each
// message in the order in which they wrote, many are served at the same time, and none waits
// for another.
func TestOrder(t *testing.T) {
	l := newLedger()
	release := make(chan struct{})
	var free sync.Once
	done := func() { free.Do(func() { close(release) }) }
	w := newWorld(t, worldOptions{
		onSend: l.onSend, agent: "queue_mode = \"followup\"\nwaiting = 1000\nslots = 128",
		answer: func(r openaitest.Request) openaitest.Reply {
			defer l.enter()()
			<-time.After(orderLatency)
			if asked, _ := question(r.Messages); chatOf(asked[0]) == slowChat {
				<-release
			}
			return l.answer(r)
		},
	})
	defer done() // the model's server waits for its replies
	lift := w.telegram.Inject(telegramtest.Fault{
		Method: "sendMessage", Chat: limitedChat, RetryAfter: 1})
	var list []telegramtest.Message
	for range orderTexts {
		for chat := range int64(limitedChat) {
			list = append(list, l.message(chat+1, 0))
		}
	}
	w.telegram.Deliver(list...)
	p := w.start()
	p.ready()

	l.await(t, orderChats*orderTexts, p.done)
	for _, chat := range []int64{slowChat, limitedChat} {
		if n := len(w.telegram.History(chat)); n > 0 {
			t.Errorf("chat %d had %d answers although it was held", chat, n)
		}
	}
	if n := w.telegram.Hits(telegramtest.Answer, limitedChat); n == 0 {
		t.Error("the limited chat was never refused")
	}
	done()
	lift()
	l.await(t, 0, p.done)
	for chat := range int64(limitedChat) {
		checkTexts(t, w, chat+1)
	}
	t.Logf("%d model calls at once, %d in all", l.overlap, l.calls)
	if l.overlap < 32 {
		t.Errorf("at most %d model calls at once", l.overlap)
	}
}

// checkTexts checks that a chat shows the answers to its messages, each once and in order.
func checkTexts(t *testing.T, w *world, chat int64) {
	t.Helper()
	texts := w.texts(chat)
	if len(texts) != orderTexts {
		t.Errorf("chat %d has %d answers, want %d", chat, len(texts), orderTexts)
		return
	}
	for i, text := range texts {
		if want := fmt.Sprintf("answer to m%d-%dr0", chat, i+1); text != want {
			t.Errorf("chat %d, answer %d: %q, want %q", chat, i+1, text, want)
			return
		}
	}
}

// chatOf returns the chat of a mark.
func chatOf(m string) (chat int) {
	_, err := fmt.Sscanf(m, "m%d-", &chat)
	if err != nil {
		panic(err) // it is no mark
	}
	return chat
}

// enter counts a call of the model that is under way until leave is called.
func (l *ledger) enter() (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy++
	l.overlap = max(l.overlap, l.busy)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.busy--
	}
}
