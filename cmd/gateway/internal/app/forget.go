package app

import (
	"errors"
	"os"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// ForgetPerson makes somebody a stranger, if they are known, and their chats unknown.
func ForgetPerson(tx *store.Tx, person int64, chats []bus.Address) error {
	err := gate.People{}.Revoke(tx, person)
	if err != nil && !errors.Is(err, gate.ErrNobody) {
		return err
	}
	return gate.Forget(tx, chats)
}

// keeper returns what keeps something of its own of the people on an account, or nil. An account
// that is disabled, or is not in the configuration any more, may have left a file.
func (g *Gateway) keeper(cfg *config.Config, account string) background.Keeper {
	if e, ok := g.channels[account].(channels.Eraser); ok {
		return e
	}
	path := WhatsAppStore(cfg, account)
	if _, err := os.Lstat(path); err != nil || g.channels[account] != nil {
		return nil
	}
	return whatsapp.New(account, path, &whatsapp.Options{Logger: g.log})
}
