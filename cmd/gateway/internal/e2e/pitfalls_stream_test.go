package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// This file has the tests about streaming. The table in pitfalls_test.go says what they check.

// words returns a text of numbered words with at least n bytes.
func words(word string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%s%04d ", word, i)
	}
	return strings.TrimSpace(b.String())
}

// stream returns a reply that arrives in small pieces, slowly enough for previews.
func stream(text string) openaitest.Reply {
	r := openaitest.Reply{First: 120 * time.Millisecond, Between: 6 * time.Millisecond}
	for chunk := range slices.Chunk([]byte(text), 100) {
		r.Text = append(r.Text, string(chunk))
	}
	return r
}

// held makes a reply pause after its beginning until a chat shows that beginning.
func (w *world) held(chat int64, r openaitest.Reply) openaitest.Reply {
	r.Hold = func(int) {
		w.holdUntil(fmt.Sprint("an answer to begin in ", chat),
			func() bool { return len(w.texts(chat)) > 0 })
	}
	return r
}

// holdUntil waits like await, but for the model: it reports a failure without ending the test.
func (w *world) holdUntil(what string, cond func() bool) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.telegram.Wait(ctx, cond); err != nil {
		w.t.Errorf("waited for %s: %v", what, err)
	}
}

// expectWords waits until the messages of a chat together equal text.
func (w *world) expectWords(chat int64, text string) {
	w.t.Helper()
	want := strings.Fields(text)
	defer func() {
		if w.t.Failed() {
			w.t.Logf("chat %d shows %.2000q", chat, w.texts(chat))
		}
	}()
	w.await("an answer of many words", func() bool {
		return slices.Equal(strings.Fields(strings.Join(w.texts(chat), " ")), want)
	})
}

// chatIn returns the number at the end of the last message.
func chatIn(r openaitest.Request) int64 {
	text := lastText(r)
	n, err := strconv.ParseInt(text[strings.LastIndexByte(text, ' ')+1:], 10, 64)
	if err != nil {
		panic(err) // the test sent a message without a number
	}
	return n
}

// edits returns the number of edits of the messages in a chat.
func (w *world) edits(chat int64) (n int) {
	for _, m := range w.telegram.History(chat) {
		n += m.Edits
	}
	return n
}

func TestStreamedLongAnswerArrives(t *testing.T) {
	t.Parallel()
	text := words("long", 6000)
	var w *world
	w = newWorld(t, worldOptions{channel: streaming,
		answer: func(r openaitest.Request) openaitest.Reply {
			return w.held(chatIn(r), stream(text))
		}})
	stop := w.run()
	const chats = 20
	for chat := range int64(chats) {
		w.telegram.Say(chat+1, chat+1, fmt.Sprint("hello from ", chat+1))
	}
	for chat := range int64(chats) {
		w.expectWords(chat+1, text)
	}
	stop()
	for chat := range int64(chats) {
		w.expectWords(chat+1, text)
		if w.edits(chat+1) == 0 {
			t.Errorf("chat %d saw nothing of the answer while it grew", chat+1)
		}
	}
}

func TestFirstDeltaOverTheLimit(t *testing.T) {
	t.Parallel()
	text := words("long", 6000)
	h := newHold()
	model := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for _, delta := range []string{text, " more", " end"} {
			if delta == " end" {
				h.wait()
			}
			fmt.Fprintf(rw, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", delta)
			_ = http.NewResponseController(rw).Flush() // an error means that the client is gone
			<-time.After(150 * time.Millisecond)       // an answer that is complete at once has no preview
		}
		fmt.Fprint(rw, `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer model.Close()
	defer h.release()
	w := newWorld(t, worldOptions{})
	w.config = strings.Replace(w.config, w.model.URL, model.URL, 1)
	w.configure(streaming)
	stop := w.run()
	w.telegram.Say(1, 1, "hello")
	w.expectWords(1, text+" more")
	h.release()
	w.expectWords(1, text+" more end")
	stop()
	w.expectWords(1, text+" more end")
}

func TestStreamDuringOutage(t *testing.T) {
	t.Parallel()
	text := words("outage", 6000)
	w := newWorld(t, worldOptions{channel: streaming,
		answer: func(openaitest.Request) openaitest.Reply { return stream(text) }})
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "A"})
	lift := w.telegram.Inject(telegramtest.Fault{Chat: 1, Effect: telegramtest.Drop})
	stop := w.run()
	w.telegram.Say(1, 1, "hello")
	w.await("a preview and the answer to fail", func() bool {
		return w.telegram.Hits(telegramtest.Drop, 1) >= 2
	})
	lift()
	w.expectWords(1, text)
	stop()
	w.expectWords(1, text)
}

func TestRetriedEditDoublesNothing(t *testing.T) {
	t.Parallel()
	text := words("edit", 6000)
	var w *world
	w = newWorld(t, worldOptions{channel: streaming,
		answer: func(openaitest.Request) openaitest.Reply { return w.held(1, stream(text)) }})
	w.telegram.Inject(telegramtest.Fault{
		Method: "editMessageText", Times: 3, Effect: telegramtest.Lose})
	stop := w.run()
	w.telegram.Say(1, 1, "hello")
	w.expectWords(1, text)
	stop()
	w.expectWords(1, text)
	if w.telegram.Hits(telegramtest.Lose, 1) == 0 {
		t.Error("no edit was lost")
	}
}

func TestRateLimitOnFinalEdit(t *testing.T) {
	t.Parallel()
	text := words("limit", 3000)
	var w *world
	w = newWorld(t, worldOptions{channel: streaming,
		answer: func(openaitest.Request) openaitest.Reply { return w.held(1, stream(text)) }})
	w.telegram.Inject(telegramtest.Fault{
		Method: "editMessageText", Times: 2, RetryAfter: 1,
		When: func(source string) bool { return strings.HasSuffix(source, text[len(text)-9:]) }})
	stop := w.run()
	w.telegram.Say(1, 1, "hello")
	w.expectWords(1, text)
	stop()
	if got := w.texts(1); len(got) != 1 || got[0] != text {
		t.Errorf("chat shows %q", got)
	}
	if n := w.telegram.Hits(telegramtest.Answer, 1); n != 2 {
		t.Errorf("%d edits were refused, want 2", n)
	}
}

func TestTopicsStreamSideBySide(t *testing.T) {
	t.Parallel()
	const group = -1001234567890
	topics := []int{11, 12, 13}
	answers := make(map[int]string)
	for _, topic := range topics {
		answers[topic] = words(fmt.Sprintf("topic%d-", topic), 6000)
	}
	var w *world
	w = newWorld(t, worldOptions{channel: streaming,
		answer: func(r openaitest.Request) openaitest.Reply {
			return w.held(group, stream(answers[int(chatIn(r))]))
		}})
	w.telegram.AddGroup(group, "Forum", topics...)
	w.run()
	for _, topic := range topics {
		w.telegram.Deliver(telegramtest.Message{Chat: group, User: 1, Thread: topic,
			Text: fmt.Sprintf("@gateway_bot topic %d", topic)})
	}
	for _, topic := range topics {
		want := strings.Fields(answers[topic])
		w.await(fmt.Sprintf("the answer in topic %d", topic), func() bool {
			var got []string
			for _, m := range w.telegram.History(group) {
				if m.Thread == topic {
					got = append(got, strings.Fields(m.Text)...)
				}
			}
			return slices.Equal(got, want)
		})
	}
	if w.edits(group) == 0 {
		t.Error("nothing was streamed")
	}
}

func TestMessageRightAfterStreamedAnswer(t *testing.T) {
	t.Parallel()
	const rounds = 10
	w := newWorld(t, worldOptions{channel: streaming,
		answer: func(r openaitest.Request) openaitest.Reply {
			return stream(words(lastText(r)+"-", 1500))
		}})
	stop := w.run()
	var want []string
	for i := range rounds {
		text := fmt.Sprintf("m%d", i)
		w.telegram.Say(1, 1, text)
		want = append(want, words(text+"-", 1500))
		last := want[i][len(want[i])-9:]
		w.await("the end of "+text, func() bool {
			texts := w.texts(1)
			return len(texts) > i && strings.HasSuffix(texts[i], last)
		})
	}
	w.expect(1, want...)
	stop()
	w.expect(1, want...)
}

// TestStoppedAnswerIsMarked checks that the preview of a stopped answer ends with "(stopped)" and
// no longer changes.
func TestStoppedAnswerIsMarked(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, worldOptions{channel: streaming,
		answer: func(openaitest.Request) openaitest.Reply {
			r := stream(words("long", 600))
			r.Hold = func(int) {
				w.holdUntil("the word of its end", func() bool { return len(w.texts(1)) > 1 })
			}
			return r
		}})
	w.run()
	w.telegram.Say(1, 1, "hello")
	w.await("a beginning", func() bool { return len(w.texts(1)) == 1 })
	w.telegram.Say(1, 1, "/stop")
	w.await("the word of its end", func() bool { return len(w.texts(1)) == 2 })
	got := w.texts(1)
	if !strings.HasSuffix(got[0], " … (stopped)") || !strings.HasPrefix(got[1], "Stopped.") {
		t.Errorf("the chat shows %q", got)
	}
}
