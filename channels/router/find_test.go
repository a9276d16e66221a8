package router_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/router"
)

// A finding platform forgets the keys of messages, but can find a message that was sent.
type finding struct {
	*platform
	asked int
}

func (f *finding) KeyTime() time.Duration { return 2 * time.Minute }

func (f *finding) Find(
	_ context.Context, part bus.Part, known []string, _ time.Time,
) (string, error) {
	f.asked++
	sent := f.Sent()
	for i, s := range slices.Backward(sent) {
		if slices.Contains(known, s.ID) {
			sent = sent[i+1:]
			break
		}
	}
	for _, s := range sent {
		if s.Part.To == part.To && s.Part.Text == part.Text {
			return s.ID, nil
		}
	}
	return "", nil
}

// Some platforms remember a key only for minutes. A message that may have been sent longer ago
// is searched for before it is sent again. An earlier message with the same text is not taken
// for it.
func TestFind(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			f := &finding{platform: w.platform}
			account := router.Account{Name: "full", Channel: f}
			stop := w.startWith(account)
			w.put(chatA, "ok")
			var down, lost atomic.Bool
			down.Store(true)
			lost.Store(true)
			w.fail = func(context.Context, call) error {
				if !lost.Swap(false) && down.Load() {
					return errDown
				}
				return nil
			}
			w.Lose(1)
			w.put(chatA, "ok") // arrives, but its answer is lost
			w.sleep(3 * time.Minute)
			if restart {
				stop()
				w.startWith(account)
			}
			down.Store(false)
			w.sleep(5 * time.Minute)
			w.wantRead(chatA, "ok", "ok")
			asked := f.asked
			if asked == 0 {
				w.t.Error("nobody looked for the message")
			}
			down.Store(true)
			w.put(chatA, "ok") // does not arrive
			w.sleep(3 * time.Minute)
			down.Store(false)
			w.sleep(5 * time.Minute)
			w.wantRead(chatA, "ok", "ok", "ok")
			w.put(chatA, "soon")
			if w.wantRead(chatA, "ok", "ok", "ok", "soon"); f.asked == asked {
				w.t.Error("nobody looked for the message that did not arrive")
			}
		})
	}
}

// The next process, too, searches for a message that may have been sent, before its first attempt.
func TestFindAfterRestart(t *testing.T) {
	for _, killed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			account := router.Account{Name: "full", Channel: &finding{platform: w.platform}}
			dir := ""
			if killed {
				dir = w.kill(1, true)
			} else {
				w.Lose(1)
			}
			stop := w.startWith(account)
			id := w.put(chatA, "hello")
			stop()
			w.sleep(3 * time.Minute)
			if killed {
				w.revive(dir)
			}
			w.startWith(account)
			w.wantRead(chatA, "hello")
			w.wantState(id, bus.Sent)
		})
	}
}
