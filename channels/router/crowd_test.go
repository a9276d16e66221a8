//go:build !race

package router_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
)

// With a thousand goroutines in a synctest bubble, the race detector of Go 1.26 itself sometimes
// crashes. So these tests run without it.

// Each conversation gets all of its messages in order, no matter how many conversations there
// are and which calls fail. The number of conversations that are served at once is bounded.
func TestBoundedLoading(t *testing.T) {
	inWorld(t, func(w *world) { w.loadAtRandom(rand.New(rand.NewPCG(1, 0))) })
}

func (w *world) loadAtRandom(random *rand.Rand) {
	var mu sync.Mutex
	busy, most := 0, 0
	w.fail = func(_ context.Context, c call) error {
		mu.Lock()
		busy++
		most = max(most, busy)
		dice := random.IntN(20)
		mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		busy--
		mu.Unlock()
		switch dice {
		case 0:
			return errDown
		case 1:
			return &channels.RateError{After: time.Minute}
		}
		return nil
	}
	const chats = 1100
	want := make(map[bus.Address][]string)
	some := func(n int) (list []bus.OutboundMessage) {
		for i := range n {
			mu.Lock()
			to := thread(fmt.Sprint(random.IntN(chats/2)), fmt.Sprint(random.IntN(2)))
			mu.Unlock()
			text := fmt.Sprint(len(want[to]), " ", i)
			want[to] = append(want[to], text)
			list = append(list, bus.OutboundMessage{To: to, Text: text})
		}
		return list
	}
	var firsts []bus.OutboundMessage
	for i := range chats { // each chat has at least one message
		to := thread(fmt.Sprint(i/2), fmt.Sprint(i%2))
		want[to] = append(want[to], "first")
		firsts = append(firsts, bus.OutboundMessage{To: to, Text: "first"})
	}
	w.store(firsts...)
	w.store(some(200)...)
	// To a platform without keys, only a few calls begin at once: see TestFewAreUnnoted.
	w.start(func(a *router.Account) { a.Channel = deduplicating{w.platform} })
	for range 3 { // meanwhile this process and another one add messages
		time.Sleep(50 * time.Millisecond)
		w.store(some(100)...)
		w.storeBy(bus.NewOutbox(), some(50)...)
	}
	w.sleep(time.Hour)
	got := make(map[bus.Address][]string)
	for _, s := range w.Sent() {
		got[s.Part.To] = append(got[s.Part.To], s.Part.Text)
	}
	for to, texts := range want {
		if !slices.Equal(got[to], texts) {
			w.t.Errorf("people read %q in %v, want %q", got[to], to, texts)
		}
	}
	if most > 1024 || most < 1000 {
		w.t.Errorf("%d conversations were served at once, want 1024", most)
	}
	if n := w.router.Pending("full"); n != 0 {
		w.t.Errorf("Open = %d at the end, want 0", n)
	}
}

// Conversations that can't be reached for long give up their workers, so that other
// conversations are served.
func TestRoomIsGivenUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.to != chatA {
				return &channels.RateError{After: time.Hour}
			}
			return nil
		}
		var list []bus.OutboundMessage
		for i := range 1100 {
			list = append(list, bus.OutboundMessage{To: thread(fmt.Sprint(i), ""), Text: "limited"})
		}
		w.store(list...)
		w.start()
		w.put(chatA, "one")
		w.sleep(30 * time.Second)
		w.wantRead(chatA, "one")
		w.sleep(15 * time.Minute)
		if n := len(w.asked("send")); n != 1101 {
			t.Errorf("%d tries, want one of each: the limit holds where a place was given up", n)
		}
	})
}

// In a group that has moved, a message waits for an older one to the other id even if there is no
// room for that one. It gives up its own room.
func TestMovedGroupInACrowd(t *testing.T) {
	inMovedGroup(t, bus.Address{}, func(w *world, _ *moves, _ *atomic.Bool) {
		w.fail = func(_ context.Context, c call) error {
			if c.to != earlier && c.to != present {
				return &channels.RateError{After: time.Hour}
			}
			return nil
		}
		list := []bus.OutboundMessage{{To: earlier, Text: "1"}, {To: present, Text: "2"}}
		for i := range 1100 { // the ids are in the order of their loading
			list = append(list, bus.OutboundMessage{To: thread(fmt.Sprint("nn", i), ""), Text: "limited"})
		}
		w.store(list...)
		w.start()
		w.wantOrder()
		w.sleep(time.Minute)
		w.wantOrder("1", "2")
	})
}

// A conversation keeps its worker as long as the table does not have the id of a sent message.
// Another worker would send the message again.
func TestUnsavedKeepsWorker(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.to != chatA && len(w.asked("send")) == 2 {
				return &channels.RateError{After: 10 * time.Minute, Account: true}
			}
			return nil
		}
		w.exec(`CREATE TRIGGER broken BEFORE UPDATE ON outbox WHEN NEW.state = 'sent'
			BEGIN SELECT RAISE(ABORT, 'written'); END`)
		w.start()
		w.put(chatA, "hello")
		var list []bus.OutboundMessage
		for i := range 3000 {
			list = append(list, bus.OutboundMessage{To: thread(fmt.Sprint("b", i), ""), Text: "limited"})
		}
		w.store(list...)
		w.sleep(30 * time.Second)
		w.exec("DROP TRIGGER broken")
		w.sleep(time.Hour)
		w.wantRead(chatA, "hello")
	})
}

// A message that fails keeps its waits, even if its conversation loses its worker meanwhile, and
// if there was an outage earlier.
func TestBackoffInACrowd(t *testing.T) {
	inWorld(t, func(w *world) {
		var up atomic.Bool
		w.fail = func(_ context.Context, c call) error {
			if c.to == chatA || !up.Load() {
				return errDown
			}
			return &channels.RateError{After: time.Hour}
		}
		list := []bus.OutboundMessage{{To: chatA, Text: "hello"}}
		for i := range 1100 {
			list = append(list, bus.OutboundMessage{To: thread(fmt.Sprint(i), ""), Text: "limited"})
		}
		w.store(list...)
		w.start(func(a *router.Account) { a.Channel = deduplicating{w.platform} })
		w.sleep(5 * time.Second)
		up.Store(true)
		w.sleep(20 * time.Minute)
		var last time.Duration
		n := 0
		for _, c := range w.asked("send") {
			if c.to != chatA {
				continue
			}
			want := min(time.Second<<max(n-1, 0), 5*time.Minute)
			// Before the next attempt, the conversation may have to wait for a worker.
			if gap := c.at - last; n > 0 && (gap < want*3/4 || gap > want*5/4+20*time.Second) {
				t.Errorf("try %d came after %v, want %v ± a quarter", n+1, gap, want)
			}
			last = c.at
			n++
		}
		if n < 10 {
			t.Errorf("%d tries in 20 minutes, want some 12", n)
		}
	})
}

// If more conversations fail than there are workers, some messages have no worker for a while.
// That time counts like a wait between two attempts, so that each message is given up in time.
func TestGivenUpInACrowd(t *testing.T) {
	inWorld(t, func(w *world) {
		var calls atomic.Int64
		w.fail = func(context.Context, call) error {
			if calls.Add(1)%3 == 0 { // so that the platform does not count as unreachable
				return &channels.RateError{After: time.Second}
			}
			return errDown
		}
		var list []bus.OutboundMessage
		for i := range 1100 {
			list = append(list, bus.OutboundMessage{To: thread(fmt.Sprint(i), ""), Text: "hello"})
		}
		w.store(list...)
		w.exec("UPDATE outbox SET tried_ms = $1", (24*time.Hour - 3*time.Minute).Milliseconds())
		w.start(func(a *router.Account) { a.Channel = deduplicating{w.platform} })
		w.sleep(2 * time.Minute)
		if n := w.router.Stats().Dead.Load(); n != 0 {
			t.Errorf("%d messages were given up too early", n)
		}
		w.sleep(8 * time.Minute)
		if n := w.router.Stats().Dead.Load(); n != 1100 {
			t.Errorf("%d of 1100 messages were given up", n)
		}
	})
}
