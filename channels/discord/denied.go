package discord

import (
	"errors"
	"sync"
)

// A denied list counts how often Discord has denied access to a channel that was to be read after a
// gap. The start of each session requests all channels with a cursor, and Discord blocks an address
// for some time after 10,000 refused calls within ten minutes.
type denied struct {
	mu    sync.Mutex
	times map[string]int // by channel
}

// maxDenied is how often to request a channel that denies access. A person may restore the access.
const maxDenied = 3

// isGone reports whether err, the answer for channel, means that the channel must not be requested
// again: it does not exist, or it has denied access too often.
func (l *denied) isGone(channel string, err error) bool {
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

// forget resets the count of a channel.
func (l *denied) forget(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.times, channel)
}
