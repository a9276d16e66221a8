package gate

import (
	"fmt"

	"gateway/bus"
	"gateway/store"
)

// Forget deletes what is stored about erased chats: cursors, pairing requests, earlier ids of
// groups, and notices to owners. The next message of such a chat is treated like its first.
func Forget(tx *store.Tx, chats []bus.Address) error {
	for _, a := range chats {
		for _, query := range []string{
			"DELETE FROM places WHERE account = $1 AND place = $2 AND place <> ''",
			"DELETE FROM pairings WHERE account = $1 AND chat = $2",
			"DELETE FROM notices WHERE account = $1 AND chat = $2",
			"DELETE FROM moves WHERE account = $1 AND (chat = $2 OR before = $2)",
		} {
			if _, err := tx.Exec(query, a.Account, a.Chat); err != nil {
				return fmt.Errorf("gate: forget %s: %w", a, err)
			}
		}
	}
	return nil
}
