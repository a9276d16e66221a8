package session

import (
	"time"

	"gateway/store"
)

// resting is the condition of conversations in which nothing has happened since $3, and nothing
// runs.
const resting = "s.updated_ms < $3 AND NOT EXISTS " +
	"(SELECT 1 FROM turns r WHERE r.session = s.key AND r.state = 'running')"

// subs is the condition of sessions that have one task and never go on. A job and a hook go on with
// theirs.
const subs = "s.kind = 'task'"

// PruneMessages deletes messages from before a time that no prompt holds any more, of conversations
// that have rested since: those of the next rows after an id. See [store.Pruning.Step]. The time is
// to be so long ago that notes were made of such conversations.
func (Store) PruneMessages(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "messages", Time: "created_ms",
		Over: "EXISTS (SELECT 1 FROM sessions s WHERE s.key = messages.session AND " +
			"(messages.id <= s.start OR " + subs + ") AND " + resting + ")",
	}.Step(tx, before, after)
}

// PruneArchived deletes likewise, but also of conversations that go on: there, what is before the
// start of the prompt. Messages with ids from below on stay, as notes are still to be made of them.
func (Store) PruneArchived(
	tx *store.Tx, below int64, before time.Time, after int64,
) (int, int64, error) {
	return store.Pruning{Table: "messages", Time: "created_ms", Below: below,
		Over: "EXISTS (SELECT 1 FROM sessions s WHERE s.key = messages.session AND " +
			"(messages.id <= s.start AND NOT EXISTS (SELECT 1 FROM turns r WHERE " +
			"r.session = s.key AND r.state = 'running' AND r.id = messages.turn) OR " +
			subs + " AND " + resting + "))",
	}.Step(tx, before, after)
}

// PruneTurns deletes turns that ended before a time and of whose messages none is left, likewise.
// The rows of sessions stay.
func (Store) PruneTurns(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "turns", Time: "updated_ms", Changing: true,
		Over: "state <> 'running' AND id < COALESCE((SELECT m.turn FROM messages m " +
			"WHERE m.session = turns.session ORDER BY m.id LIMIT 1), id + 1)",
	}.Step(tx, before, after)
}
