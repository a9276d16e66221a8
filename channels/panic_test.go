package channels_test

import (
	"context"
	"testing"

	"gateway/bus"
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
