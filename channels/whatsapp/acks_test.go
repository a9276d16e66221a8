package whatsapp

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestAcks(t *testing.T) {
	t.Parallel()
	a := newAcks(4 * time.Second)
	late := fmt.Errorf("send: %w", errLate)
	var got []time.Duration
	for range 5 {
		got = append(got, a.wait("a")/time.Second)
		a.record("a", late)
	}
	if want := []time.Duration{4, 8, 16, 30, 30}; !slices.Equal(got, want) {
		t.Errorf("the tries of a message wait %d s, want %d", got, want)
	}
	a.record("a", errors.New("not connected"))
	if got := a.wait("a"); got != longestAck {
		t.Errorf("after another error a try waits %v, want %v", got, longestAck)
	}
	if got := a.wait("b"); got != 4*time.Second {
		t.Errorf("the first try of another message waits %v", got)
	}
	a.record("a", nil)
	if got := a.wait("a"); got != 4*time.Second {
		t.Errorf("after it was taken a try waits %v", got)
	}
	for i := range 3 * maxLate {
		a.record(fmt.Sprint(i), late)
	}
	if first, last := a.wait("0"), a.wait(fmt.Sprint(3*maxLate-1)); first >= last {
		t.Errorf("after many messages, a try of the oldest waits %v, of the newest %v", first, last)
	}
}
