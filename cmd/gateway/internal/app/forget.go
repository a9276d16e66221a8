package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"gateway/agent/background"
	"gateway/agent/export"
	"gateway/agent/tools/mcp"
	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/router"
	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/ops"
	"gateway/store"
)

// People gives access to the people in the database.
type People struct{ gate.People }

// Known reports whether a person with an id exists.
func (p People) Known(q store.Queryer, person int64) (bool, error) {
	list, err := p.List(q)
	return slices.ContainsFunc(list, func(p gate.Person) bool { return p.ID == person }), err
}

// NewExporter returns an exporter for the people in the home of cfg. scopes and files are the
// folders of memories and of media. secrets returns the credentials that must not be in an export.
func NewExporter(
	cfg *config.Config, db *store.DB, scopes, files *os.Root, secrets func() router.Secrets,
) *export.Exporter {
	return &export.Exporter{DB: db, People: People{}, Memory: scopes, Media: files,
		Before:    VersionsFolder(cfg),
		Secrets:   func() []string { return secrets() },
		HasSecret: func(r io.Reader) (bool, error) { return secrets().FoundInFile(r) },
		Zone:      cfg.Gateway.Location, Now: time.Now}
}

// StoredSecrets returns the credentials in a configuration and its home. Commands that run beside
// the gateway use it.
func StoredSecrets(cfg *config.Config) (router.Secrets, error) {
	logins, err := mcp.StoredSecrets(MCPFolder(cfg))
	if err != nil {
		return nil, err
	}
	list := append(cfg.Secrets(), logins...)
	if e, err := ops.ReadEndpoint(cfg.Gateway.Home); err == nil {
		list = append(list, e.Token)
	}
	return router.NewSecrets(list), nil
}

// newSender returns the handler of /export.
func (g *Gateway) newSender(cfg *config.Config) *export.Sender {
	secrets := func() router.Secrets { return g.secrets(g.settings.Load()) }
	return &export.Sender{Files: g.media, MaxFile: MediaOptions(cfg, nil).MaxFile,
		Exporter: NewExporter(cfg, g.db, g.knowledge.scopes, g.home.media, secrets)}
}

// Forget revokes the access of a person, if they exist, and deletes what is known about their
// chats.
func (People) Forget(tx *store.Tx, person int64, chats []bus.Address) error {
	err := gate.People{}.Revoke(tx, person)
	if err != nil && !errors.Is(err, gate.ErrNoPerson) {
		return err
	}
	return gate.Forget(tx, chats)
}

// agentAccounts has the accounts of a gateway. It implements [agent.Accounts].
type agentAccounts struct {
	*Gateway
	cfg *config.Config
}

// Served reports whether messages can be sent to an account.
func (g agentAccounts) Served(account string) bool { return g.channels[account] != nil }

// ExternalStore returns the store of an account's own data about people, or nil if it has none. It
// also returns one for a WhatsApp account that was disabled or removed but has left its file.
func (g agentAccounts) ExternalStore(account string) background.ExternalStore {
	if e, ok := g.channels[account].(channels.Eraser); ok {
		return e
	}
	path := WhatsAppStore(g.cfg, account)
	if _, err := os.Lstat(path); err != nil || g.channels[account] != nil {
		return nil
	}
	return whatsapp.New(account, path, &whatsapp.Options{Logger: g.log})
}

// Admitted shows people that overheard messages were received.
func (g agentAccounts) Admitted(messages []bus.InboundMessage) {
	g.router.Admitted(messages)
	g.ops.metrics.Admitted(messages)
}

// States describes the accounts for /status.
func (g agentAccounts) States(q store.Queryer) ([]string, error) {
	dead, err := bus.DeadByAccount(q)
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
	for _, answers := range dead { // includes accounts that were removed from the configuration
		given += answers
	}
	return append(lines, fmt.Sprintf(
		"all, sent since the start: %d, possibly sent twice: %d, undelivered: %d",
		n.Sent.Load(), n.Uncertain.Load(), given)), nil
}
