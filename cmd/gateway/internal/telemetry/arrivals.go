package telemetry

import (
	"sync"
	"time"

	"gateway/bus"
)

// arrivals contains the arrival times of messages that are not answered yet. When it is full, it
// drops the oldest: some messages never get an answer.
type arrivals struct {
	mu    *sync.Mutex
	at    map[arrival]time.Time
	order []arrival // a ring; next is the index of the oldest
	next  int
}

// An arrival identifies a message.
type arrival struct{ account, chat, id string }

// maxArrivals is the capacity of arrivals.
const maxArrivals = 8192

func newArrivals() arrivals {
	return arrivals{mu: new(sync.Mutex), at: make(map[arrival]time.Time)}
}

func (a *arrivals) add(messages []bus.InboundMessage, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range messages {
		key := arrival{m.From.Account, m.From.Chat, m.ID}
		if len(a.order) < maxArrivals {
			a.order = append(a.order, key)
		} else {
			delete(a.at, a.order[a.next])
			a.order[a.next] = key
			a.next = (a.next + 1) % maxArrivals
		}
		a.at[key] = now
	}
}

// take removes the messages that out answers, and returns their arrival times.
func (a *arrivals) take(out bus.OutboundMessage) (list []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range out.Answers {
		key := arrival{out.To.Account, out.To.Chat, id}
		if at, ok := a.at[key]; ok {
			list = append(list, at)
			delete(a.at, key)
		}
	}
	return list
}
