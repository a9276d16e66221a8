package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"gateway/agent/background"
)

// A fakeExternalStore is an external store of data about people. Its first calls of Erase fail.
type fakeExternalStore struct {
	trouble int
	erased  [][]string
}

func (s *fakeExternalStore) Erase(_ context.Context, chats []string) error {
	if s.trouble > 0 {
		s.trouble--
		return errors.New("drawer: it is locked")
	}
	s.erased = append(s.erased, chats)
	return nil
}

// An external store of an account erases the data of a forgotten person after the last message to
// the person was sent, because sending needs the data. The call is repeated until it succeeds,
// also by the next process.
func TestForgetMeExternalStores(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		s := &fakeExternalStore{trouble: 2}
		w.outside.keeper = func(account string) background.ExternalStore {
			if account != "test" {
				t.Errorf("asked for the keeper of %q, want test", account)
			}
			return s
		}
		w.start()
		w.tells(5, "b", "hello")
		w.tells(5, "a", "hello", "/forget me now")
		w.sleep(time.Minute)
		if s.trouble != 2 {
			t.Error("it is erased before the last message was sent")
		}
		w.sends()
		w.sleep(time.Minute)
		if s.trouble != 1 || len(s.erased) > 0 {
			t.Errorf("trouble left: %d, want 1; erased: %q", s.trouble, s.erased)
		}
		w.restart()
		w.sleep(time.Hour)
		if len(s.erased) == 1 {
			slices.Sort(s.erased[0])
		}
		if len(s.erased) != 1 || !slices.Equal(s.erased[0], []string{"a", "b"}) {
			t.Errorf("erased: %q, want a and b once", s.erased)
		}
		if left := w.traces(`"chat":"b"`); len(left) > 0 {
			t.Errorf("the address is left in %q", left)
		}
	})
}
