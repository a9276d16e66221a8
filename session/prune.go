package session

import (
	"time"

	"gateway/store"
)

// resting is the condition of conversations in which nothing has happened since $3, and nothing
// runs. Nobody ever goes on with that of a sub-agent.
const resting = "s.updated_ms < $3 AND NOT EXISTS " +
	"(SELECT 1 FROM turns r WHERE r.session = s.key AND r.state = 'running')"

// PruneMessages deletes messages from before a time that no prompt holds any more, of conversations
// that have rested since: those of the next rows after an id. See [store.Pruning.Step]. The time is
// to be so long ago that notes were made of such conversations.
func (Store) PruneMessages(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "messages", Time: "created_ms",
		Over: "session IN (SELECT s.key FROM sessions s WHERE (messages.id <= s.start OR " +
			"s.key LIKE '%" + subMark + "%') AND " + resting + ")"}.Step(tx, before, after)
}

// PruneTurns deletes turns that ended before a time and of whose messages none is left, likewise.
// The rows of sessions stay.
func (Store) PruneTurns(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "turns", Time: "updated_ms",
		Over: "state <> 'running' AND id < COALESCE((SELECT m.turn FROM messages m " +
			"WHERE m.session = turns.session ORDER BY m.id LIMIT 1), id + 1)",
	}.Step(tx, before, after)
}
