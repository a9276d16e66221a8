package router_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
)

// A keyed platform remembers its messages by their keys. If a key is sent again, it returns the
// existing message instead of creating another one.
type keyed struct {
	*platform

	mu   sync.Mutex
	ids  map[string]string // by key
	hide error             // of the next call of Send, which succeeds
	down bool              // nothing can be sent
	late bool              // nobody sees edits any more
}

func (*keyed) Deduplicates() {}

func (k *keyed) Send(ctx context.Context, part bus.Part) (id string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return "", errors.New("not connected")
	}
	id, known := k.ids[part.Key]
	if !known {
		before := len(k.Sent())
		id, err = k.platform.Send(ctx, part)
		if sent := k.Sent(); len(sent) > before { // also if the answer was lost
			k.ids[part.Key] = sent[len(sent)-1].ID
		}
	}
	if k.hide != nil {
		id, err, k.hide = "", k.hide, nil
	}
	return id, err
}

func (k *keyed) set(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func (k *keyed) Edit(ctx context.Context, to bus.Address, id, text string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.late {
		return nil
	}
	return k.platform.Edit(ctx, to, id, text)
}

// An answer whose message may exist is stopped, or waits for somebody. The platform knows the key,
// so the message gets its mark, or is removed if it only shows what the agent does.
func TestLostPreviewEnds(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		waits      bool
		want       []string
	}{
		{"stopped", "one two", false, []string{"one two … (stopped)"}},
		{"waits with text", "one two", true, []string{"one two"}},
		{"waits with status", "", true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				k := &keyed{platform: w.platform, ids: make(map[string]string), hide: io.EOF}
				w.startWith(router.Account{Name: "full", Channel: k, Streaming: true})
				w.progress(bus.Progress{To: chatA, Stream: "s", Text: tt.text, Status: "asks"})
				w.sleep(2 * time.Second)
				w.progress(bus.Progress{To: chatA, Stream: "s", Ended: true, Void: true, Waits: tt.waits})
				w.sleep(10 * time.Second)
				w.wantRead(chatA, tt.want...)
				if n := w.rows("previews"); n != 0 {
					w.t.Errorf("%d previews are noted", n)
				}
			})
		})
	}
}

// A message whose id was lost can be edited only for some time. Afterwards, the answer is a message
// of its own, and the lost one is removed. The answer is seen once, even if an earlier attempt has
// written it into the lost message.
func TestPreviewLostLongAgo(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, tried := range []bool{false, true} {
			inWorld(t, func(w *world) {
				k := &keyed{platform: w.platform, ids: make(map[string]string)}
				account := router.Account{Name: "full", Channel: k, Streaming: true}
				stop := w.startWith(account)
				answer := bus.OutboundMessage{To: chatA, Text: "one two three", Stream: "s"}
				if tried { // the beginning does not arrive, and then the answer does
					w.Fail(1, io.EOF)
				} else {
					k.hide = io.EOF
				}
				w.progress(bus.Progress{To: chatA, Stream: "s", Text: "one two"})
				w.sleep(2 * time.Second)
				if tried {
					k.set(func() { k.hide = io.EOF })
					w.store(answer)
					w.sleep(100 * time.Millisecond)
				}
				k.set(func() { k.down, k.late = true, true })
				w.sleep(20 * time.Minute)
				if restart {
					stop()
					w.startWith(account)
				}
				k.set(func() { k.down = false })
				if !tried {
					w.store(answer)
				}
				w.sleep(10 * time.Minute)
				w.wantRead(chatA, "one two three")
				if n := w.rows("previews"); n != 0 {
					w.t.Errorf("%d previews are noted", n)
				}
			})
		}
	}
}

// The id of a preview's message is lost, because the platform's answer was lost or because the
// process ended. The final answer still replaces the text of that message, so that nobody sees
// its beginning twice.
func TestPreviewLost(t *testing.T) {
	for _, hide := range []error{channels.ErrUncertain, io.EOF} { // both mean: it can be sent again
		for _, restart := range []bool{false, true} {
			for _, failing := range []int{0, 2} {
				inWorld(t, func(w *world) { w.losePreview(hide, restart, failing) })
			}
		}
	}
}

// losePreview hides the id of a preview's message behind an error, and lets a number of edits fail.
func (w *world) losePreview(hide error, restart bool, failing int) {
	w.t.Helper()
	k := &keyed{platform: w.platform, ids: make(map[string]string), hide: hide}
	account := router.Account{Name: "full", Channel: k, Streaming: true}
	stop := w.startWith(account)
	w.progress(bus.Progress{To: chatA, Stream: "s", ReplyTo: "1", Text: "one two"})
	w.sleep(2 * time.Second)
	if restart {
		stop()
		w.startWith(account)
	}
	w.Fail(failing, context.DeadlineExceeded)
	// The final answer replies to a message that was written meanwhile.
	w.store(bus.OutboundMessage{To: chatA, Text: "one two three", Stream: "s", ReplyTo: "2"})
	w.sleep(time.Minute)
	if got := w.read(chatA); !slices.Equal(got, []string{"one two three"}) {
		w.t.Errorf("%v, restart %v, %d failures: people read %q", hide, restart, failing, got)
	}
	if n := w.rows("previews"); n != 0 {
		w.t.Errorf("%d previews are noted", n)
	}
}

// A message of a preview that was certainly not sent is sent again. It needs no edit, because it
// has the newest text.
func TestPreviewNotSent(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want []string // texts sent
	}{
		{"failed", context.DeadlineExceeded, []string{"one two", "one two three"}},
		{"limited", &channels.RateError{After: time.Second}, []string{"one two", "one two"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start(func(a *router.Account) { a.Streaming = true })
				w.Fail(1, c.err)
				w.show(chatA, "s", "one two")
				w.sleep(10 * time.Second)
				answer := c.want[len(c.want)-1]
				w.answer(chatA, answer, "s")
				w.sleep(time.Minute)
				w.wantRead(chatA, answer)
				var sent []string
				for _, call := range w.asked("send", "edit") {
					if call.kind == "edit" {
						w.t.Errorf("edited to %q", call.text)
					}
					sent = append(sent, call.text)
				}
				if !slices.Equal(sent, c.want) {
					w.t.Errorf("calls with the texts %q, want %q", sent, c.want)
				}
				if n := w.rows("previews"); n != 0 {
					w.t.Errorf("%d previews are noted", n)
				}
			})
		})
	}
}
