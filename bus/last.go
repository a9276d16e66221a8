package bus

import (
	"slices"

	"gateway/store"
)

// Last returns the newest message of a conversation that a person has written to the agent, as far
// as the inbox still has one; false if there is none.
func (in *Inbox) Last(q store.Queryer, a Address) (Received, bool, error) {
	list, err := in.query(q, `SELECT id, body, received_ms FROM inbox
		WHERE account = $1 AND chat = $2 AND thread = $3 AND state <> 'heard'
		ORDER BY id DESC LIMIT 50`, a.Account, a.Chat, a.Thread)
	i := slices.IndexFunc(list, func(r Received) bool { return r.Message.Note == nil })
	if err != nil || i < 0 {
		return Received{}, false, err
	}
	return list[i], true, nil
}
