package discord

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
)

// An event is an undecoded event from the gateway.
type event struct {
	kind string // Discord's name, such as "MESSAGE_CREATE"
	data json.RawMessage
}

// errFull ends a run. The next one reads the lost messages.
var errFull = errors.New("too many events wait to be stored")

// A backlog holds the events that wait to be stored, up to a limit. It is safe for concurrent use.
type backlog struct {
	events  chan event
	limit   int64
	pending atomic.Int64 // events that are not stored, including those taken from events
	lost    *missed      // of the Channel, so that it outlives the run

	full   chan struct{} // closed when an event was lost; later ones are lost, too
	isFull atomic.Bool
}

// newBacklog returns a backlog for up to limit events, which adds the others to lost.
func newBacklog(limit int, lost *missed) *backlog {
	return &backlog{events: make(chan event, limit), limit: int64(limit), lost: lost,
		full: make(chan struct{})}
}

// put queues an event. It never blocks, because heartbeats would not be read meanwhile. The readers
// of all shards call it.
func (b *backlog) put(kind string, data json.RawMessage) {
	switch kind {
	case "READY", "RESUMED", "MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE":
	default:
		return
	}
	e := event{kind, data}
	// After a loss every later event is lost, too. Otherwise a later message would move the cursor
	// of its channel past the lost one.
	if b.isFull.Load() {
		b.lost.add(e)
		return
	}
	if b.pending.Add(1) > b.limit {
		b.lost.add(e)
		if b.isFull.CompareAndSwap(false, true) {
			close(b.full)
		}
		return
	}
	b.events <- e // the queue has room for all pending events
}

// remove records that n events do not wait any more.
func (b *backlog) remove(n int) { b.pending.Add(-int64(n)) }

// lose records the events that nobody will take as missed.
func (b *backlog) lose() {
	for {
		select {
		case e := <-b.events:
			b.lost.add(e)
		default:
			return
		}
	}
}

// A missed list holds channels without a stored cursor whose first message could not be stored, so
// that the next run reads it.
type missed struct {
	mu    sync.Mutex
	first map[string]uint64 // that message, by channel
}

// add records an event that will not be stored.
func (l *missed) add(e event) {
	var m struct {
		ID      string `json:"id"`
		Channel string `json:"channel_id"`
	}
	if e.kind == "MESSAGE_CREATE" && json.Unmarshal(e.data, &m) == nil && idNumber(m.ID) > 0 {
		l.put(m.Channel, idNumber(m.ID))
	}
}

// put records a missed message of a channel. Only the oldest one counts, because reading begins
// there.
func (l *missed) put(channel string, id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = make(map[string]uint64)
	}
	if before, ok := l.first[channel]; !ok || id < before {
		l.first[channel] = id
	}
}

// drain returns the missed messages and clears the list.
func (l *missed) drain() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.first
	l.first = nil
	return first
}
