package router_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels/router"
)

// A keyed platform remembers its messages by their keys. If a key is sent again, it returns the
// existing message instead of creating another one.
type keyed struct {
	*platform

	mu  sync.Mutex
	ids map[string]string // by key
}

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
	return id, err
}

// The id of a preview's message is lost, because the platform's answer was lost or because the
// process ended. The final answer still replaces the text of that message, so that nobody sees
// its beginning twice.
func TestPreviewLost(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, failing := range []int{0, 2} { // number of edits that fail
			inWorld(t, func(w *world) {
				k := &keyed{platform: w.platform, ids: make(map[string]string)}
				account := router.Account{Name: "full", Channel: k, Streaming: true}
				stop := w.startWith(account)
				w.Lose(1)
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
					w.t.Errorf("restart %v, %d failures: people read %q", restart, failing, got)
				}
				if n := w.rows("previews"); n != 0 {
					w.t.Errorf("%d previews are noted", n)
				}
			})
		}
	}
}
