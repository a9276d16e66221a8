package gate

import (
	"fmt"

	"gateway/bus"
	"gateway/store"
)

// Forget deletes what is stored about erased chats: cursors, pairing requests and notices to
// owners. The next message of such a chat is treated like its first. The earlier id of a group
// stays, so that policies for that id still apply.
func Forget(tx *store.Tx, chats []bus.Address) error {
	for _, a := range chats {
		for _, query := range []string{
			"DELETE FROM places WHERE account = $1 AND place = $2 AND place <> ''",
			"DELETE FROM pairings WHERE account = $1 AND chat = $2",
			"DELETE FROM notices WHERE account = $1 AND chat = $2",
		} {
			if _, err := tx.Exec(query, a.Account, a.Chat); err != nil {
				return fmt.Errorf("gate: forget %s: %w", a, err)
			}
		}
	}
	return nil
}
