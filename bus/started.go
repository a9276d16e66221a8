package bus

import (
	"gateway/store"
)

// MarkStarted records that work on the messages begins. If the process crashes before their turn
// has begun, the messages are suspects.
func (in *Inbox) MarkStarted(tx *store.Tx, list []Received) error {
	for _, r := range list {
		_, err := setInbox(tx, "UPDATE inbox SET handed = 1 WHERE id = $1 AND state = 'waiting'", r.Seq)
		if err != nil {
			return err
		}
	}
	return nil
}

// Started returns the waiting messages on which an earlier process had begun to work.
func (in *Inbox) Started(q store.Queryer) ([]Received, error) {
	return readInbox(q, "state = 'waiting' AND handed = 1 ORDER BY id")
}

// UnmarkStarted undoes [Inbox.MarkStarted]. If crashed is true, it counts a crash for the message.
func (in *Inbox) UnmarkStarted(tx *store.Tx, seq int64, crashed bool) error {
	n := 0
	if crashed {
		n = 1
	}
	_, err := setInbox(tx, "UPDATE inbox SET handed = 0, crashes = crashes + $2 WHERE id = $1", seq, n)
	return err
}

// Suspects returns the waiting messages that have a crash count of crashes or more.
func (in *Inbox) Suspects(q store.Queryer, crashes int) ([]Received, error) {
	return readInbox(q, "state = 'waiting' AND crashes >= $1 ORDER BY id", crashes)
}
