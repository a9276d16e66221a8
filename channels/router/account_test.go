package router

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/recent"
)

func reserve(
	a *account, p *reservation, chat string, l channels.Limits, now time.Time,
) time.Duration {
	return a.reserve(p, bus.Address{Account: "a", Chat: chat}, l, now)
}

// Idle chats are forgotten, so that the memory of a busy account stays bounded. Chats that are
// not idle are remembered.
func TestClocksAreBounded(t *testing.T) {
	a := newAccount(Account{}, time.Now())
	l := channels.Limits{Chat: channels.Rate{Every: time.Minute, Burst: 2}}
	now := time.Now()
	paused := now.Add(time.Hour)
	a.pause(&channels.RateError{After: time.Hour}, bus.Address{Chat: "paused"}, now)
	for i := range 20 * maxBuckets {
		if wait := reserve(a, new(reservation), fmt.Sprint(i), l, now); wait > 0 {
			t.Fatalf("chat %d waits %v", i, wait)
		}
		now = now.Add(10 * time.Millisecond) // so 6,000 of them are not idle
		if len(a.chats) > 4*maxBuckets {
			t.Fatalf("%d chats are remembered", len(a.chats))
		}
	}
	if wait := reserve(a, new(reservation), "paused", l, now); wait != paused.Sub(now) {
		t.Errorf("the paused chat waits %v, want %v", wait, paused.Sub(now))
	}
	reserve(a, new(reservation), "busy", l, now)
	reserve(a, new(reservation), "busy", l, now)
	for i := range 4 * maxBuckets {
		reserve(a, new(reservation), fmt.Sprint("other ", i), l, now)
	}
	if wait := reserve(a, new(reservation), "busy", l, now); wait != time.Minute {
		t.Errorf("the busy chat waits %v, want 1m", wait)
	}
}

// Without rates, no chat is remembered.
func TestNoClocks(t *testing.T) {
	a := newAccount(Account{Unlimited: true}, time.Now())
	for i := range 100 {
		to := bus.Address{Chat: fmt.Sprint(i)}
		if wait := a.reserve(new(reservation), to, a.limits(to), time.Now()); wait > 0 {
			t.Errorf("chat %d waits %v", i, wait)
		}
	}
	if len(a.chats) > 0 {
		t.Errorf("%d chats are remembered", len(a.chats))
	}
}

// A reservation keeps its place in line, and asking again does not use up another one's turn.
func TestPassKeepsItsPlace(t *testing.T) {
	a := newAccount(Account{}, time.Now())
	l := channels.Limits{Account: channels.Rate{Every: time.Second, Burst: 1}}
	now := time.Now()
	var first, second, third reservation
	if wait := reserve(a, &first, "1", l, now); wait != 0 {
		t.Errorf("the first waits %v", wait)
	}
	for range 5 {
		if wait := reserve(a, &second, "2", l, now); wait != time.Second {
			t.Errorf("the second waits %v, want 1s", wait)
		}
		if wait := reserve(a, &third, "3", l, now); wait != 2*time.Second {
			t.Errorf("the third waits %v, want 2s", wait)
		}
	}
	now = now.Add(2 * time.Second)
	for i, p := range []*reservation{&third, &second} {
		if wait := reserve(a, p, fmt.Sprint(3-i), l, now); wait != 0 {
			t.Errorf("number %d still waits %v", 3-i, wait)
		}
		if *p != (reservation{}) {
			t.Errorf("the pass was not used up: %+v", *p)
		}
	}
	if wait := reserve(a, &first, "1", l, now); wait != time.Second {
		t.Errorf("the next waits %v, want 1s", wait)
	}
}

// If the platform asks for several pauses, the longest one counts.
func TestLongestPauseHolds(t *testing.T) {
	now := time.Now()
	for _, account := range []bool{false, true} {
		a := newAccount(Account{}, time.Now())
		a.pause(&channels.RateError{After: time.Minute, Account: account}, bus.Address{Chat: "c"}, now)
		a.pause(&channels.RateError{After: time.Second, Account: account}, bus.Address{Chat: "c"}, now)
		if wait := a.wait(bus.Address{Chat: "c"}, now); wait != time.Minute {
			t.Errorf("account %v: wait is %v, want 1m", account, wait)
		}
		if wait := a.wait(bus.Address{Chat: "other"}, now); (wait == time.Minute) != account {
			t.Errorf("account %v: another chat waits %v", account, wait)
		}
		if wait := a.wait(bus.Address{Chat: "c"}, now.Add(time.Minute)); wait != 0 {
			t.Errorf("account %v: wait is %v after the pause", account, wait)
		}
	}
}

func TestReserveConcurrently(t *testing.T) {
	a := newAccount(Account{}, time.Now())
	l := channels.Limits{Chat: channels.Rate{Every: time.Hour, Burst: 5},
		Account: channels.Rate{Every: time.Hour, Burst: 20}}
	now := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for i := range 100 {
		wg.Go(func() {
			if reserve(a, new(reservation), fmt.Sprint(i%10), l, now) == 0 {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if taken != 20 {
		t.Errorf("%d messages may go, want 20", taken)
	}
}

// Streams that have ended are remembered.
func TestEndedStreams(t *testing.T) {
	p := previews{ended: recent.New[string, struct{}](maxEnded)}
	if p.end("a"); !p.hasEnded("a") || p.hasEnded("b") {
		t.Errorf("a has ended: %v, b has ended: %v", p.hasEnded("a"), p.hasEnded("b"))
	}
	if p.end(""); p.hasEnded("") {
		t.Error("messages without a stream are a stream")
	}
}
