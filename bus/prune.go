package bus

import (
	"time"

	"gateway/store"
)

// Offload is the name of files that hold tool results too long for a prompt. They have a retention
// time of their own.
const Offload = "tool-result.txt"

// Export is the name of archives with all data of a person. The names of the stored archives begin
// with ExportPrefix. They have a retention time of their own, and later exports leave them out.
const (
	Export       = "gateway-export.zip"
	ExportPrefix = "export-"
)

// Prune deletes inbound messages older than before that no turn will answer, among the next rows
// after an id. They were answered or dropped, are ambient or can't be read, or are held for an
// account that no longer runs. See [store.Pruning.Step]. A message is recognised as a duplicate
// only while its row exists, and Telegram delivers unacknowledged messages again for 24 hours:
// before must be longer ago than that.
func (in *Inbox) Prune(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "inbox", Time: "received_ms",
		Over: "state IN ('done', 'dropped', 'heard', 'held', 'bad')"}.Step(tx, before, after)
}

// Prune deletes outbound messages that were sent or dropped before a time, or that can't be read,
// in the same way as [Inbox.Prune]. Dead letters stay until a person drops them.
func (out *Outbox) Prune(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "outbox", Time: "updated_ms", Changing: true,
		Over: "state IN ('sent', 'dropped', 'bad')"}.Step(tx, before, after)
}
