package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// People are the people that the database knows.
type People struct{ gate.People }

// Known reports whether there is a person with a number.
func (p People) Known(q store.Queryer, person int64) (bool, error) {
	list, err := p.List(q)
	return slices.ContainsFunc(list, func(p gate.Person) bool { return p.ID == person }), err
}

// Forget makes somebody a stranger, if they are known, and their chats unknown.
func (People) Forget(tx *store.Tx, person int64, chats []bus.Address) error {
	err := gate.People{}.Revoke(tx, person)
	if err != nil && !errors.Is(err, gate.ErrNobody) {
		return err
	}
	return gate.Forget(tx, chats)
}

// agentAccounts are those of a gateway. They implement [agent.Accounts].
type agentAccounts struct {
	*Gateway
	cfg *config.Config
}

// Served reports whether messages to an account can be sent.
func (g agentAccounts) Served(account string) bool { return g.channels[account] != nil }

// Keeper returns what keeps data of its own about the people on an account, or nil. An account that
// is disabled, or not in the configuration any more, may have left a file.
func (g agentAccounts) Keeper(account string) background.Keeper {
	if e, ok := g.channels[account].(channels.Eraser); ok {
		return e
	}
	path := WhatsAppStore(g.cfg, account)
	if _, err := os.Lstat(path); err != nil || g.channels[account] != nil {
		return nil
	}
	return whatsapp.New(account, path, &whatsapp.Options{Logger: g.log})
}

// States describes the accounts for /status.
func (g agentAccounts) States(q store.Queryer) ([]string, error) {
	dead, err := bus.NewOutbox().DeadByAccount(q)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, s := range g.supervisors {
		state, since := s.State()
		lines = append(lines, fmt.Sprintf("%s, %d to send, %d given up, for %s: %s", s.Name(),
			g.router.Pending(s.Name()), dead[s.Name()], time.Since(since).Truncate(time.Second), state))
	}
	n, given := g.router.Stats(), 0
	for _, answers := range dead { // also of accounts that are not configured any more
		given += answers
	}
	return append(lines, fmt.Sprintf(
		"all, sent since the start: %d, possibly sent twice: %d, undelivered: %d",
		n.Sent.Load(), n.Uncertain.Load(), given)), nil
}
