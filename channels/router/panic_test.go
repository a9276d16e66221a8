package router_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// A message that a channel's code can't stand is given up, and the others go on: it must not
// end each process that tries it.
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

// Text that can't be measured, which is what splitting does, is no reason either.
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
		w.wantRead(chatA, "too much poison", "next") // the platform takes more than it says
	})
}

// A preview that a channel's code can't stand is given up, and its answer comes all the same.
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
