package discord

import (
	"errors"
	"sync"
)

// A denied list counts how often a channel could not be read after a gap for want of access. Each
// start of a session asks for all channels with a cursor, and Discord shuts an address out for a
// time after 10,000 refused calls within ten minutes.
type denied struct {
	mu    sync.Mutex
	times map[string]int // by channel
}

// maxDenied is how often a channel is asked for that refuses access: a person may give it back.
const maxDenied = 3

// gone reports whether err, the answer of channel, means that it is not to be asked again: there
// is no such channel, or it has refused access too often.
func (l *denied) gone(channel string, err error) bool {
	refused, ok := errors.AsType[*refusedError](err)
	if !ok || refused.code != noChannel && refused.code != noAccess {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times == nil {
		l.times = make(map[string]int)
	}
	l.times[channel]++
	if refused.code == noAccess && l.times[channel] < maxDenied {
		return false
	}
	delete(l.times, channel)
	return true
}

// forget begins to count a channel anew.
func (l *denied) forget(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.times, channel)
}
