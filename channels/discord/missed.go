package discord

import (
	"encoding/json"
	"sync"
)

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
