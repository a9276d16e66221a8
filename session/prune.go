package session

import (
	"time"

	"gateway/store"
)

// resting is the condition of sessions without activity since $3 and without a running turn.
const resting = "s.updated_ms < $3 AND NOT EXISTS " +
	"(SELECT 1 FROM turns r WHERE r.session = s.key AND r.state = 'running')"

// subs is the condition of sessions that do a single task. Sessions of jobs and hooks continue with
// each run.
const subs = "s.task <> ''"

// PruneMessages deletes messages older than before that no prompt holds any more, in sessions
// without activity since then, among the next rows after an id. See [store.Pruning.Step]. It
// deletes only messages whose ids are less than below. The others still need notes.
func PruneMessages(
	tx *store.Tx, below int64, before time.Time, after int64,
) (int, int64, error) {
	return store.Pruning{Table: "messages", Time: "created_ms", Below: below,
		Over: "EXISTS (SELECT 1 FROM sessions s WHERE s.key = messages.session AND " +
			"(messages.id <= s.start OR " + subs + ") AND " + resting + ")",
	}.Step(tx, before, after)
}

// PruneArchived is like [PruneMessages] but also deletes messages of active sessions, from
// before the start of the prompt.
func PruneArchived(
	tx *store.Tx, below int64, before time.Time, after int64,
) (int, int64, error) {
	return store.Pruning{Table: "messages", Time: "created_ms", Below: below,
		Over: "EXISTS (SELECT 1 FROM sessions s WHERE s.key = messages.session AND " +
			"(messages.id <= s.start AND NOT EXISTS (SELECT 1 FROM turns r WHERE " +
			"r.session = s.key AND r.state = 'running' AND r.id = messages.turn) OR " +
			subs + " AND " + resting + "))",
	}.Step(tx, before, after)
}

// PruneTurns deletes turns that ended before a time and have no messages left, among the next rows
// after an id. See [store.Pruning.Step]. The rows of sessions stay.
func PruneTurns(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "turns", Time: "updated_ms", Changing: true,
		Over: "state <> 'running' AND id < COALESCE((SELECT m.turn FROM messages m " +
			"WHERE m.session = turns.session ORDER BY m.id LIMIT 1), id + 1)",
	}.Step(tx, before, after)
}
