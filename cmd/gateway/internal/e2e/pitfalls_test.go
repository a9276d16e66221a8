package e2e

// This table lists failures that were seen in other gateways of this kind. The test beside each
// failure checks that this gateway does not have it.
//
// Lost messages
//
//	A kill loses messages, answers and tool rounds           TestKill
//	The platform's cursor moves before the update is stored  TestOffsetFollowsStore
//	Nothing resumes after a restart                          TestRestartResumesByItself
//	A follow-up makes the first answer vanish                TestFollowUpDuringTurnKeepsFirstAnswer
//	The first delta is longer than the platform allows       TestFirstDeltaOverTheLimit
//	A delta is sent during an outage                         TestStreamDuringOutage
//	A retried edit doubles the text                          TestRetriedEditDoublesNothing
//	Two topics that stream at once mix their texts           TestTopicsStreamSideBySide
//	A message that overflows the queue is only logged        TestOverflowTellsTheSender
//	A streamed answer of 6,000 characters is lost            TestStreamedLongAnswerArrives
//	A 429 on the final edit loses the answer                 TestRateLimitOnFinalEdit
//	A message right after a streamed answer has no reply     TestMessageRightAfterStreamedAnswer
//	retry_after is ignored                                   TestRetryAfterIsKept
//	SIGTERM loses the messages in progress                   TestKill/drain
//	A send is dropped after three quick attempts             TestSendIsTriedOnAndOn
//	/stop drops tool rounds; queued messages run anyway      TestStopKeepsCompletedRounds
//
// Repeated messages
//
//	Platform ids are not remembered, or only in memory       TestSameMessageTwice
//	If part 2 fails, part 1 is sent again                    TestFailedPartIsSentAlone
//	A send with an unknown outcome is repeated silently      TestLostAnswerIsCounted
//
// Messages out of order, and blocked chats
//
//	One slow chat stops all; two messages of a chat race     TestOrder
//	A retry for one chat blocks every chat                   TestOrder
//	/help has no answer while all slots are busy             TestHelpWhileAllSlotsAreBusy
//	With 5,000 chats the whole process stands still          TestThousandsOfChats
//	A slow typing indicator delays every answer              TestSlowTypingDelaysNoAnswer
//	A chat that blocked the bot stalls the others            TestBlockedChatStallsNoOther
//	The process panics on shutdown                           TestKill/drain

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// lastText returns the newest message of the user without its envelope.
func lastText(r openaitest.Request) string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			_, text, _ := strings.Cut(m.Content, "] ")
			return text
		}
	}
	return ""
}

// say returns a reply of the model with a text.
func say(text string) openaitest.Reply { return openaitest.Reply{Text: []string{text}} }

// repeat is a model that repeats the newest message.
func repeat(r openaitest.Request) openaitest.Reply { return say("you said " + lastText(r)) }

// A hold blocks callers of wait until it is released. The first call of wait closes reached.
type hold struct {
	reached, released chan struct{}
	reach, release    func()
}

func newHold() *hold {
	h := &hold{reached: make(chan struct{}), released: make(chan struct{})}
	h.reach = sync.OnceFunc(func() { close(h.reached) })
	h.release = sync.OnceFunc(func() { close(h.released) })
	return h
}

func (h *hold) wait() {
	h.reach()
	<-h.released
}

// received waits until the gateway has acknowledged all messages.
func (w *world) received() {
	w.t.Helper()
	w.await("the gateway to confirm", func() bool { return w.telegram.Pending() == 0 })
}

// expect waits until a chat shows exactly these texts.
func (w *world) expect(chat int64, texts ...string) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("chat %d shows %q", chat, w.texts(chat))
		}
	}()
	w.await(fmt.Sprintf("%q", texts), func() bool { return slices.Equal(w.texts(chat), texts) })
}

func TestRestartResumesByItself(t *testing.T) {
	t.Parallel()
	h := newHold()
	defer h.release()
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		h.wait()
		return repeat(r)
	}})
	p := w.start()
	w.telegram.Say(1, 1, "hello")
	until(t, "the model to be asked", h.reached)
	p.kill()
	h.release()
	w.start()
	w.expect(1, "you said hello")
}

func TestOffsetFollowsStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	p := w.start()
	p.ready()
	w.await("the gateway to poll", w.telegram.Polling)
	w.look(func(db *store.DB) {
		err := db.Tx(t.Context(), func(*store.Tx) error { // blocks all other writes
			w.telegram.Say(1, 1, "hello")
			// A gateway that acknowledges messages before it stores them would do so within this time.
			confirmed := time.NewTimer(300 * time.Millisecond)
			defer confirmed.Stop()
			<-confirmed.C
			if w.telegram.Pending() != 1 {
				t.Error("the message is confirmed but not stored")
			}
			p.kill()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	w.start()
	w.expect(1, "you said hello")
}

func TestFollowUpDuringTurnKeepsFirstAnswer(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"steer", "followup"} {
		h := newHold()
		defer h.release()
		w := newWorld(t, worldOptions{agent: fmt.Sprintf("queue_mode = %q", mode),
			answer: func(r openaitest.Request) openaitest.Reply {
				h.wait()
				return repeat(r)
			}})
		w.run()
		w.telegram.Say(1, 1, "one")
		until(t, "the model to be asked", h.reached)
		w.telegram.Say(1, 1, "two")
		w.telegram.Say(1, 1, "/queue") // is answered after the worker has taken all earlier messages
		mode := fmt.Sprintf("The queue mode is %s. It says what happens to a message that comes "+
			"while I answer:\n\n• steer: I read it at my next step\n• followup: I answer it afterwards\n"+
			"• collect: I answer all that came at once, afterwards\n"+
			"• interrupt: I drop the answer and begin with the new message", mode)
		w.expect(1, mode)
		h.release()
		w.expect(1, mode, "you said one", "you said two")
	}
}

func TestOverflowTellsTheSender(t *testing.T) {
	t.Parallel()
	h := newHold()
	defer h.release()
	w := newWorld(t, worldOptions{agent: "queue_mode = \"followup\"\nwaiting = 2",
		answer: func(r openaitest.Request) openaitest.Reply {
			h.wait()
			return repeat(r)
		}})
	stop := w.run()
	w.telegram.Say(1, 1, "1")
	until(t, "the model to be asked", h.reached)
	for i := range 4 {
		w.telegram.Say(1, 1, fmt.Sprint(i+2))
	}
	const told = "I still have 2 of your messages to answer, so I could not take this one. " +
		"Please send it again when I have caught up, or use /stop to discard them."
	w.expect(1, told)
	w.received()
	h.release()
	want := []string{told, "you said 1", "you said 2", "you said 3"}
	w.expect(1, want...)
	stop()
	w.expect(1, want...)
	w.look(func(db *store.DB) {
		if n := w.count(db, "inbox WHERE state = 'dropped'"); n != 2 {
			t.Errorf("%d messages dropped, want 2", n)
		}
	})
}

func TestStopKeepsCompletedRounds(t *testing.T) {
	t.Parallel()
	h := newHold()
	defer h.release()
	var after openaitest.Request
	w := newWorld(t, worldOptions{agent: `queue_mode = "followup"`,
		answer: func(r openaitest.Request) openaitest.Reply {
			switch last := r.Messages[len(r.Messages)-1]; {
			case last.Role == "tool":
				h.wait()
				return say("too late")
			case lastText(r) == "after":
				after = r
				return say("fine")
			}
			return openaitest.Reply{ToolCalls: []openaitest.ToolCall{{Name: "time", Arguments: "{}"}}}
		}})
	stop := w.run()
	w.telegram.Say(1, 1, "before")
	until(t, "the second round", h.reached)
	w.telegram.Say(1, 1, "queued")
	w.telegram.Say(1, 1, "/stop")
	const stopped = "Stopped, and discarded one waiting message."
	w.expect(1, stopped)
	h.release()
	w.telegram.Say(1, 1, "after")
	w.expect(1, stopped, "fine")
	stop()
	w.expect(1, stopped, "fine")
	var roles, all []string
	for _, m := range after.Messages {
		roles = append(roles, m.Role)
		all = append(all, m.Content)
	}
	want := []string{"system", "user", "assistant", "tool", "assistant", "user"}
	if !slices.Equal(roles, want) {
		t.Errorf("the next prompt holds %q, want %q", roles, want)
	}
	if text := strings.Join(all, "\n"); strings.Contains(text, "queued") {
		t.Errorf("the next prompt holds the discarded message:\n%s", text)
	}
}

func TestSendIsTriedOnAndOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	const failures = 4
	w.telegram.Inject(telegramtest.Fault{Method: "sendMessage", Times: failures,
		Effect: telegramtest.Answer, Code: http.StatusInternalServerError})
	w.run()
	w.telegram.Say(1, 1, "hello")
	w.expect(1, "you said hello")
	if n := w.telegram.Hits(telegramtest.Answer, 1); n != failures {
		t.Errorf("%d tries failed, want %d", n, failures)
	}
}

func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	var refused time.Time
	const seconds = 4
	w.telegram.Inject(telegramtest.Fault{Method: "sendMessage", Times: 1, RetryAfter: seconds,
		When: func(string) bool {
			refused = time.Now()
			return true
		}})
	w.run()
	w.telegram.Say(1, 1, "hello")
	w.expect(1, "you said hello")
	waited := w.telegram.History(1)[0].Received.Sub(refused)
	if waited < seconds*time.Second {
		t.Errorf("tried again after %s, want %d s", waited, seconds)
	}
}

func TestSameMessageTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	const message = `"message":{"message_id":77,"date":1700000000,"text":"hello",` +
		`"from":{"id":1,"first_name":"A"},"chat":{"id":1,"type":"private"}}`
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "A"})
	stop := w.run()
	w.telegram.DeliverRaw(message)
	w.telegram.DeliverRaw(message)
	w.expect(1, "you said hello")
	w.received()
	stop()
	w.telegram.DeliverRaw(message)
	w.run()
	w.telegram.Say(1, 1, "bye")
	w.expect(1, "you said hello", "you said bye")
}

func TestFailedPartIsSentAlone(t *testing.T) {
	t.Parallel()
	text := words("part", 6000)
	w := newWorld(t, worldOptions{answer: openaitest.Say(text)})
	last := func(source string) bool { return strings.HasSuffix(source, text[len(text)-9:]) }
	for _, f := range []telegramtest.Fault{
		{RetryAfter: 1}, {Effect: telegramtest.Page}, {Effect: telegramtest.Drop},
	} {
		f.Method, f.When, f.Times = "sendMessage", last, 1
		w.telegram.Inject(f)
	}
	stop := w.run()
	w.telegram.Say(1, 1, "hello")
	w.expectWords(1, text)
	stop()
	w.expectWords(1, text)
	if got := len(w.texts(1)); got != 2 {
		t.Errorf("%d messages, want 2", got)
	}
}

func TestLostAnswerIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	w.telegram.Inject(telegramtest.Fault{
		Method: "sendMessage", Times: 1, Effect: telegramtest.Lose})
	stop := w.run()
	w.telegram.Say(1, 1, "hello")
	w.expect(1, "you said hello", "you said hello")
	stop()
	w.look(func(db *store.DB) {
		if w.count(db, "outbox WHERE state = 'sent' AND uncertain = 1") != 1 {
			t.Error("the outbox does not say that the outcome of one try was unknown")
		}
	})
}
