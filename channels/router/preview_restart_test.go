package router_test

import (
	"errors"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/router"
)

// After a restart between a preview and its answer, the answer replaces the preview.
func TestRestartDuringStream(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.SetLimits(small)
			stop := w.start()
			w.show(chatA, "s", "the first\n\nsec")
			w.sleep(2 * time.Second)
			stop()
			w.start()
			if resumed { // the preview grows once more
				w.show(chatA, "s", "the firs")
				w.sleep(2 * time.Second)
				w.wantRead(chatA, "the firs", "sec")
			}
			w.answer(chatA, "the first\n\nsecond", "s")
			w.wantRead(chatA, "the first", "second")
			if n := w.rows("previews"); n != 0 {
				t.Errorf("%d previews are noted after the end", n)
			}
		})
	}
}

// If an answer is stopped after a restart, before it grows again, its preview gets its mark.
func TestStoppedAfterRestart(t *testing.T) {
	for _, silent := range []bool{false, true} {
		inWorld(t, func(w *world) {
			stop := w.start()
			w.show(chatA, "s", "hel")
			w.sleep(2 * time.Second)
			stop()
			w.start()
			want := []string{"… (stopped)", "I have stopped."}
			if silent {
				w.live.Publish(bus.Progress{To: chatA, Stream: "s", Ended: true, Void: true})
				want = want[:1]
			} else {
				w.store(bus.OutboundMessage{To: chatA, Text: "I have stopped.", Stops: []string{"s"}})
			}
			w.sleep(2 * time.Second)
			w.wantRead(chatA, want...)
			if n := w.rows("previews"); n != 0 {
				t.Errorf("%d previews are noted after the end", n)
			}
		})
	}
}

// A stopped answer whose first message may or may not have been sent leaves no row, also after a
// restart.
func TestStoppedUnsent(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			stop := w.start()
			w.Fail(1, errors.New("no connection"))
			w.show(chatA, "s", "hel")
			w.sleep(2 * time.Second)
			if n := w.rows("previews"); n != 1 {
				t.Fatalf("%d previews are noted, want 1", n)
			}
			if restart {
				stop()
				w.start()
			}
			w.store(bus.OutboundMessage{To: chatA, Text: "I have stopped.", Stops: []string{"s"}})
			w.sleep(2 * time.Second)
			w.wantRead(chatA, "I have stopped.")
			if n := w.rows("previews"); n != 0 {
				t.Errorf("%d previews are noted after the end, want none", n)
			}
		})
	}
}

// After a restart that switches streaming off, an answer still replaces its preview, and a preview
// that was stopped gets its mark.
func TestStreamingSwitchedOff(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		inWorld(t, func(w *world) {
			stop := w.start()
			w.show(chatA, "s", "hel")
			w.sleep(2 * time.Second)
			stop()
			w.start(func(a *router.Account) { a.Streaming = false })
			w.show(chatA, "s", "hell")
			w.sleep(10 * time.Second)
			w.wantRead(chatA, "hel")
			if stopped {
				w.store(bus.OutboundMessage{To: chatA, Text: "I have stopped.", Stops: []string{"s"}})
				w.sleep(0)
				w.wantRead(chatA, "hell … (stopped)", "I have stopped.")
			} else {
				w.answer(chatA, "hello", "s")
				w.wantRead(chatA, "hello")
			}
			if n := w.rows("previews"); n != 0 {
				t.Errorf("%d previews are noted after the end", n)
			}
		})
	}
}
