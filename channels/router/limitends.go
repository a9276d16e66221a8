package router

import (
	"maps"
	"time"

	"gateway/channels"
)

// limitEnds has the ends of the platform's rate limits for optional calls, by chat. The chat "" has
// the limit of the account. Messages don't wait for these limits.
type limitEnds map[string]time.Time

// add stores a limit that the platform has reported for a call in chat.
func (l limitEnds) add(limit *channels.RateError, chat string, now time.Time) {
	maps.DeleteFunc(l, func(_ string, end time.Time) bool { return !end.After(now) })
	if limit.Account {
		chat = ""
	}
	l[chat] = now.Add(max(limit.After, time.Millisecond))
}

// wait returns how long calls in chat must wait, or a time that is not positive.
func (l limitEnds) wait(chat string, now time.Time) time.Duration {
	return max(l[chat].Sub(now), l[""].Sub(now))
}
