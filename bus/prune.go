package bus

import (
	"time"

	"gateway/store"
)

// Offload is what a file is called that holds what was too long for a prompt. Such files are kept
// for a time of their own.
const Offload = "tool-result.txt"

// Prune deletes messages of people that came before a time, if they were answered, dropped or only
// overheard: those of the next rows after an id. See [store.Pruning.Step]. Platforms deliver again
// what they believe we have not got, Telegram for 24 hours, and by its row a message is known
// again: the time is to be longer ago than that.
func (in *Inbox) Prune(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "inbox", Time: "received_ms",
		Over: "state IN ('done', 'dropped', 'heard', 'bad')"}.Step(tx, before, after)
}

// Prune deletes messages to people that were sent or dropped before a time, likewise. Those that
// could not be delivered stay until a person drops them. Rows that can't be read go, too.
func (out *Outbox) Prune(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "outbox", Time: "updated_ms", Changing: true,
		Over: "state IN ('sent', 'dropped', 'bad')"}.Step(tx, before, after)
}
