package bus

import (
	"strings"

	"gateway/store"
)

// ReplaceAccount records that an account has become another one of the platform. From then on,
// new messages may repeat the IDs of the messages that came before, and a search by ID no longer
// finds the messages from before. Messages that the agent wrote to itself keep their IDs.
func ReplaceAccount(tx *store.Tx, account string) error {
	_, err := tx.Exec(`INSERT INTO predecessors (account, message)
		VALUES ($1, (SELECT COALESCE(max(id), 0) FROM inbox))
		ON CONFLICT (account) DO UPDATE SET message = excluded.message`, account)
	return store.Wrap(err, "bus: replace account %s", account)
}

// toPredecessor is the condition of messages that came to the account before [ReplaceAccount].
const toPredecessor = `origin = 'person' AND id <= COALESCE(
	(SELECT p.message FROM predecessors p WHERE p.account = inbox.account), 0)`

// RepeatedIDs returns the IDs that several messages of a chat have had, because its account has
// become another one: see [ReplaceAccount].
func RepeatedIDs(q store.Queryer, a Address) (map[string]bool, error) {
	earlier, err := store.Collect(q, "bus: read inbox", func(scan store.Scan, name *string) error {
		return scan(name)
	}, `SELECT message FROM inbox WHERE account = $1 AND chat = $2 AND message GLOB 'before *: *'`,
		a.Account, a.Chat)
	times := make(map[string]int)
	for i := 0; i < len(earlier) && err == nil; i++ {
		_, id, _ := strings.Cut(earlier[i], ": ")
		if times[id]++; times[id] == 1 {
			var present int
			err = q.QueryRow(`SELECT count(*) FROM inbox
				WHERE account = $1 AND chat = $2 AND message = $3`, a.Account, a.Chat, id).Scan(&present)
			times[id] += present
		}
	}
	repeated := make(map[string]bool)
	for id, n := range times {
		repeated[id] = n > 1
	}
	return repeated, store.Wrap(err, "bus: read inbox")
}

// freeID changes the ID of the message that has the chat and the ID of m, if it came to the account
// before [ReplaceAccount]. It reports whether there was one.
func freeID(tx *store.Tx, m *InboundMessage) (bool, error) {
	return setInbox(tx, `UPDATE inbox SET message = 'before ' || id || ': ' || message
		WHERE account = $1 AND chat = $2 AND message = $3 AND `+toPredecessor,
		m.From.Account, m.From.Chat, m.ID)
}
