package discord

import (
	"errors"

	"gateway/channels/recent"
)

// maxDenied is how often to request a channel that denies access. A person may restore the access.
const maxDenied = 3

// isGone reports whether err, the answer for a channel that was to be read after a gap, means that
// the channel must not be requested again: it does not exist, or it has denied access too often.
// The start of each session requests all channels with a cursor, and Discord blocks an address for
// some time after 10,000 refused calls within ten minutes.
func (s *storer) isGone(channel string, err error) bool {
	refused, ok := errors.AsType[*refusedError](err)
	if !ok || refused.code != noChannel && refused.code != noAccess {
		return false
	}
	if recent.Count(s.c.denied, channel) < maxDenied && refused.code == noAccess {
		return false
	}
	s.c.denied.Delete(channel)
	return true
}
