package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// mark matches the mark of a message in a [ledger]: its chat, its number in the chat, and the
// number of tool rounds before the model answers.
var mark = regexp.MustCompile(`\bm(\d+)-(\d+)r(\d+)\b`)

// marks returns the marks in text.
func marks(text string) []string { return mark.FindAllString(text, -1) }

// A ledger records all messages to the gateway and all answers. It is also the model: each answer
// names the messages that it answers.
type ledger struct {
	slow bool  // the model answers bit by bit
	late *hold // delays the model's answer to every fourth chat; nil: no delay

	mu       sync.Mutex
	said     map[int64]int   // number of messages, by chat
	open     map[string]bool // marks of messages that have no answer
	answered int
	lost     map[string]int // number of sends whose outcome Telegram has hidden, by text
	calls    int            // calls of the model
	busy     int            // calls of the model under way
	overlap  int            // largest number of concurrent calls
	changed  chan struct{}  // closed at the next answer
}

func newLedger() *ledger {
	return &ledger{
		said: make(map[int64]int), open: make(map[string]bool),
		lost: make(map[string]int), changed: make(chan struct{}),
	}
}

// delay holds the answers to the next messages of some people until the returned hold is
// released.
func (l *ledger) delay() *hold {
	h := newHold()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = h
	return h
}

// message returns the next message of a chat on Telegram.
func (l *ledger) message(chat int64, rounds int) telegramtest.Message {
	return telegramtest.Message{User: chat, Text: l.next(chat, rounds)}
}

// next returns the text of the next message of a chat.
func (l *ledger) next(chat int64, rounds int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said[chat]++
	text := fmt.Sprintf("m%d-%dr%d", chat, l.said[chat], rounds)
	l.open[text] = true
	return "please look at " + text
}

// onSend records an answer that Telegram has executed.
func (l *ledger) onSend(s telegramtest.Sent) { l.heard(s.Text) }

// heard records an answer that people can see.
func (l *ledger) heard(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range marks(text) {
		if l.open[m] {
			l.answered++
			delete(l.open, m)
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// state returns the number of answered and of open messages, and a channel that is closed when
// these numbers may change.
func (l *ledger) state() (answered, open int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered, len(l.open), l.changed
}

// await waits until n messages are answered (0: all), or until stop is closed. The total time is
// not limited, but some answer must arrive within patience.
func (l *ledger) await(t testing.TB, n int, stop <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for last := 0; ; {
		answered, open, changed := l.state()
		if answered > last {
			last = answered
			timer.Reset(patience)
		}
		if n > 0 && answered >= n || open == 0 {
			return
		}
		select {
		case <-changed:
		case <-stop:
			return
		case <-timer.C:
			t.Fatalf("%d messages have no answer, and none came for %s", open, patience)
		}
	}
}

// answer is the model. It calls as many tools as the messages ask for, and then names the
// messages.
func (l *ledger) answer(r openaitest.Request) openaitest.Reply {
	l.mu.Lock()
	l.calls++
	late := l.late
	l.mu.Unlock()
	asked, done := question(r.Messages)
	if late != nil && chatOf(asked[0])%4 == 0 {
		late.wait()
	}
	rounds := 0
	for _, m := range asked {
		n, _ := strconv.Atoi(mark.FindStringSubmatch(m)[3]) // the pattern says that it is one
		rounds = max(rounds, n)
	}
	if done >= rounds {
		text := "answer to " + strings.Join(asked, " ")
		if !l.slow {
			return say(text)
		}
		return openaitest.Reply{Text: strings.SplitAfter(text+" bit by bit until the end", " "),
			First: 100 * time.Millisecond, Between: 15 * time.Millisecond}
	}
	calls := []openaitest.ToolCall{{Name: "time", Arguments: "{}"}}
	if done%2 == 1 {
		calls = append(calls, openaitest.ToolCall{
			Name: "read_file", Arguments: `{"path":"notes.txt"}`})
	}
	for i := range calls {
		calls[i].ID = fmt.Sprintf("call-%d-%d", r.N, i)
	}
	return openaitest.Reply{Text: []string{"Let me see. "}, ToolCalls: calls}
}

// question returns the marks of the user's messages since the last answer, and the number of tool
// rounds since then.
func question(messages []openaitest.Message) (asked []string, rounds int) {
	for _, m := range slices.Backward(messages) {
		switch {
		case m.Role == "assistant" && len(m.ToolCalls) == 0, m.Role == "system":
			return asked, rounds
		case m.Role == "assistant":
			rounds++
		case m.Role == "user":
			asked = append(marks(m.Content), asked...)
		}
	}
	return asked, rounds
}

// hide records that Telegram hides the result of an attempt to send text.
func (l *ledger) hide(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[text]++
}
