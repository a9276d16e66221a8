package router_test

import (
	"context"
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
	hide error             // of the next call that sends a message
}

func (*keyed) Deduplicates() {}

func (k *keyed) Send(ctx context.Context, part bus.Part) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id, ok := k.ids[part.Key]; ok {
		return id, nil
	}
	before := len(k.Sent())
	id, err := k.platform.Send(ctx, part)
	if sent := k.Sent(); len(sent) > before { // also if the answer was lost
		k.ids[part.Key] = sent[len(sent)-1].ID
	}
	if k.hide != nil {
		id, err, k.hide = "", k.hide, nil
	}
	return id, err
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
