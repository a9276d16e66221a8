package router_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// If a channel's code panics on a message, the message is given up and the others are sent. It
// must not crash each process that tries it.
func TestPanicInDelivery(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.text == "poison" {
				panic("a bug")
			}
			return nil
		}
		to := thread("1", "")
		poison := w.put(to, "poison")
		w.put(to, "next")
		w.start()
		w.wantState(poison, bus.Dead)
		w.wantRead(to, "next")
	})
}

// A text on which the measuring function panics doesn't crash the process either.
func TestPanicInMeasure(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(channels.Limits{Text: 10, EditInterval: time.Second, Measure: func(s string) int {
			if strings.Contains(s, "poison") {
				panic("a bug")
			}
			return len(s)
		}})
		w.start()
		w.show(chatA, "s", "much poison")
		w.sleep(2 * time.Second)
		w.answer(chatA, "too much poison", "s")
		w.put(chatA, "next")
		w.wantRead(chatA, "too much poison", "next") // the platform accepts more than its limit
	})
}

// If a channel's code panics on a preview, the preview is given up. Its answer is still sent.
func TestPanicInPreview(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.text == "poi" {
				panic("a bug")
			}
			return nil
		}
		w.start()
		w.show(chatA, "s", "poi")
		w.sleep(2 * time.Second)
		w.show(chatA, "s", "point")
		w.sleep(2 * time.Second)
		w.answer(chatA, "point", "s")
		w.wantCalls(shows, `send "poi" at 1s`, `send "point" at 4s`, `edit "point" at 4s`)
	})
}
