package question

import (
	"time"

	"gateway/store"
)

// Prune deletes decided questions that expired earlier than before. Each call checks the next
// rows after an id. See [store.Pruning.Step].
func Prune(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "questions", Time: "expires_ms", Changing: true,
		Over: "state NOT IN ('open', 'granted')"}.Step(tx, before, after)
}
