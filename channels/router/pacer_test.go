package router_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
)

// A paced platform has a limit for each thread, and reports when it accepts the next message.
type paced struct {
	*platform
	until time.Time
}

func (p *paced) Wait(to bus.Address) time.Duration {
	if to.Thread != "slow" {
		return 0
	}
	return time.Until(p.until)
}

func (p *paced) Limits(bus.Address) channels.Limits {
	l := small
	l.PerThread, l.Chat = true, channels.Rate{Every: time.Minute, Burst: 1}
	return l
}

// Threads with limits of their own don't wait for each other or for their chat. No message is
// sent before the platform accepts it.
func TestThreadsDoNotWait(t *testing.T) {
	inWorld(t, func(w *world) {
		p := &paced{platform: w.platform, until: time.Now().Add(10 * time.Second)}
		w.startWith(router.Account{Name: "full", Channel: p})
		var all []bus.OutboundMessage
		for _, name := range []string{"", "one", "two", "slow"} {
			all = append(all, bus.OutboundMessage{To: thread("a", name), Text: "1"},
				bus.OutboundMessage{To: thread("a", name), Text: "2"})
		}
		w.store(all...)
		w.sleep(2 * time.Minute)
		at := make(map[string][]time.Duration)
		for _, c := range w.asked("send") {
			at[c.to.Thread] = append(at[c.to.Thread], c.at.Round(time.Second))
		}
		for _, name := range []string{"", "one", "two"} {
			if want := []time.Duration{0, time.Minute}; !slices.Equal(at[name], want) {
				t.Errorf("thread %q got messages at %v, want %v", name, at[name], want)
			}
		}
		want := []time.Duration{10 * time.Second, 70 * time.Second}
		if !slices.Equal(at["slow"], want) {
			t.Errorf("the slow thread got messages at %v, want %v", at["slow"], want)
		}
	})
}

// A thread that must wait delays no other thread.
func TestPauseOfOneThread(t *testing.T) {
	inWorld(t, func(w *world) {
		p := &paced{platform: w.platform}
		limited := false
		w.fail = func(_ context.Context, c call) error {
			if c.to.Thread == "one" && !limited {
				limited = true
				return &channels.RateError{After: time.Minute}
			}
			return nil
		}
		w.startWith(router.Account{Name: "full", Channel: p})
		w.put(thread("a", "one"), "x")
		w.put(thread("a", "two"), "x")
		w.wantCalls([]string{"send"}, `send "x" at 0s`, `send "x" at 0s`)
		w.sleep(2 * time.Minute)
		w.wantRead(thread("a", "one"), "x")
	})
}
