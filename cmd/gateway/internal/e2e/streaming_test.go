//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/channels/telegram/telegramtest"
)

// streamChats returns how many chats TestManyStreams has.
func streamChats() int { return few(1000) }

// Settings of TestManyStreams: the number and delay of the pieces of answers.
const (
	streamPieces = 20
	streamEvery  = 150 * time.Millisecond
	// streamInterval is the time between two edits in a direct chat on Telegram.
	streamInterval = time.Second
)

// TestManyStreams checks growing answers of many people at the same time. Each answer must grow
// steadily to its end, with no more edits than the platform accepts, and the questions must be
// answered in order.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	l := newStreamLog()
	model := httptest.NewServer(http.HandlerFunc(l.serve))
	defer model.Close()
	defer l.release()
	w := newWorld(t, worldOptions{
		agent: fmt.Sprintf("queue_mode = \"followup\"\nslots = %d", streamChats())})
	// All answers wait until the last one has begun to grow, which can take long on a slow machine.
	w.config = strings.Replace(w.config, fmt.Sprintf("%q", w.model.URL),
		fmt.Sprintf("%q\nidle_timeout = \"1h\"", model.URL), 1)
	w.configure("access = \"open\"\nrate_limit = \"off\"\nreaction = \"\"\nsender_rate = 0")
	for _, method := range []string{"sendMessage", "editMessageText"} {
		w.telegram.Inject(telegramtest.Fault{Method: method, When: l.note})
	}
	var list []telegramtest.Message
	for n := range 2 {
		for chat := range int64(streamChats()) {
			list = append(list, telegramtest.Message{User: chat + 1,
				Text: fmt.Sprintf("please stream s%d-%d", chat+1, n+1)})
		}
	}
	p := w.start()
	p.ready()
	w.telegram.Deliver(list...)
	defer func() {
		if t.Failed() {
			l.logStill(t, p)
		}
	}()

	until(t, "all first answers to be seen growing", l.growing)
	l.release()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answers := 2 * streamChats()
	err := p.wait(ctx, func() bool { return p.logged("message sent") == answers })
	if err != nil {
		t.Fatalf("%d of %d answers sent: %v", p.logged("message sent"), answers, err)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.exited(patience); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.newest())
	}
	for chat := range int64(streamChats()) {
		for n, text := range w.texts(chat + 1) {
			name := fmt.Sprintf("s%d-%d", chat+1, n+1)
			if want := streamed(name, streamPieces); text != want {
				t.Errorf("chat %d, answer %d: %q, want %q", chat+1, n+1, text, want)
			}
			l.check(t, name)
		}
		if n := len(w.texts(chat + 1)); n != 2 {
			t.Errorf("chat %d has %d answers, want 2", chat+1, n)
		}
	}
	t.Logf("%d edits, the closest ones %v apart", l.edits, l.closest)
}

// streamed returns the first n pieces of the answer with a name.
func streamed(name string, n int) string {
	return name + strings.Repeat(" grows and", n-1) + " grows"
}

// A streamLog records what people see of growing answers on Telegram. It is also the model that
// gives these answers.
type streamLog struct {
	growing  chan struct{} // closed when every first answer has been edited once
	released chan struct{} // closed when the first answers may end
	release  func()

	mu      sync.Mutex
	seen    map[string][]shownText   // by the name of the answer
	shown   map[string]chan struct{} // closed when something of the answer is seen
	grown   int
	edits   int
	closest time.Duration
}

// A shownText is the visible text of an answer at a time.
type shownText struct {
	text string
	at   time.Time
}

func newStreamLog() *streamLog {
	l := &streamLog{
		growing: make(chan struct{}), released: make(chan struct{}),
		seen: make(map[string][]shownText), shown: make(map[string]chan struct{}),
		closest: time.Hour,
	}
	l.release = sync.OnceFunc(func() { close(l.released) })
	return l
}

var streamName = regexp.MustCompile(`\bs\d+-[12]\b`)

// note records a call that shows an answer. It never makes a call fail.
func (l *streamLog) note(text string) bool {
	name := streamName.FindString(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[name] = append(l.seen[name], shownText{text, time.Now()})
	if len(l.seen[name]) == 1 {
		close(l.shownOf(name))
	}
	if strings.HasSuffix(name, "-1") && len(l.seen[name]) == 2 {
		if l.grown++; l.grown == streamChats() {
			close(l.growing)
		}
	}
	return false
}

// shownOf returns the channel that is closed when something of the answer with a name is seen. l.mu
// is held.
func (l *streamLog) shownOf(name string) chan struct{} {
	if l.shown[name] == nil {
		l.shown[name] = make(chan struct{})
	}
	return l.shown[name]
}

// check checks that an answer only grew, and not faster than allowed. Only the last edit may come
// at any time.
func (l *streamLog) check(t *testing.T, name string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen[name]
	for i := 1; i < len(seen); i++ {
		before, now := seen[i-1], seen[i]
		if !strings.HasPrefix(now.text, before.text) || now.text == before.text {
			t.Errorf("%s: %q became %q", name, before.text, now.text)
		}
		l.edits++
		if i == len(seen)-1 {
			break
		}
		d := now.at.Sub(before.at)
		l.closest = min(l.closest, d)
		if d < streamInterval {
			t.Errorf("%s: edit %d came %v after the one before", name, i, d)
		}
	}
}

// logStill logs which first answers were not seen growing, and what the gateway logged of previews
// and the model.
func (l *streamLog) logStill(t *testing.T, p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for chat := range int64(streamChats()) {
		if name := fmt.Sprintf("s%d-1", chat+1); len(l.seen[name]) < 2 {
			t.Logf("%s was seen %d times", name, len(l.seen[name]))
		}
	}
	t.Logf("previews given up: %d, the last one: %s; model retried: %d",
		p.logged("preview given up"), p.lastOf("preview given up"), p.logged("model is retried"))
}

// serve is the model. It pauses in the middle of a first answer until the gateway shows the
// beginning, because a slow gateway would show the whole answer at once. It ends no first answer
// before the gateway has shown all first answers growing.
func (l *streamLog) serve(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Messages) == 0 {
		http.Error(w, "not understood", http.StatusBadRequest)
		return
	}
	name := streamName.FindString(asked.Messages[len(asked.Messages)-1].Content)
	first := strings.HasSuffix(name, "-1")
	l.mu.Lock()
	shown := l.shownOf(name)
	l.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for n := range streamPieces {
		text := " grows"
		if n == 0 {
			text = name + text
		}
		if n == streamPieces/2 && first {
			select {
			case <-shown:
			case <-l.released:
			}
		}
		if n < streamPieces-1 {
			text += " and"
		} else if first {
			<-l.released
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", text)
		_ = http.NewResponseController(w).Flush() // an error means that the client is gone
		<-tick.C
	}
	fmt.Fprint(w, `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
}
