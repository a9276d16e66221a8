package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/channels"
	"gateway/channels/discord"
	"gateway/channels/gate"
	"gateway/channels/media"
	"gateway/channels/telegram"
	"gateway/channels/terminal"
	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// newPolicy returns the policy that decides who may write to an account.
func newPolicy(cfg *config.Config, name string) gate.Policy {
	c := cfg.Channels[name]
	if c.Type == "terminal" {
		// A person who can use the terminal can already read everything in the home.
		return gate.Policy{Access: gate.Open, Owners: []string{terminal.Sender}, ShowsPairings: true}
	}
	p := gate.Policy{
		Access: gate.Access(c.Access), Allow: c.Allow, Owners: c.Owners, Groups: c.Groups,
		Always: c.Activation == "always", Phones: c.Type == "whatsapp", PerMinute: c.SenderRate,
	}
	if cfg.Transcription.Model != "" {
		p.Overhear = cfg.Transcription.Groups
	}
	for _, policy := range cfg.Policies {
		for _, entry := range policy.Chats {
			account, chat, _ := strings.Cut(entry, "/")
			// The gate knows chats but no threads.
			if chat, _, _ = strings.Cut(chat, "/"); account == name {
				p.Ruled = append(p.Ruled, chat)
			}
		}
	}
	return p
}

// NewChannel returns the channel of an account. It neither connects nor opens files.
func NewChannel(cfg *config.Config, name string, log *slog.Logger) channels.Channel {
	c := cfg.Channels[name]
	switch c.Type {
	case "terminal":
		return terminal.New(name, &terminal.Options{
			Socket: SocketPath(cfg.Gateway.Home), History: historyFile(cfg), Logger: log})
	case "discord":
		return discord.New(name, c.Token.Reveal(), &discord.Options{
			BaseURL: c.APIURL, Logger: log, Shards: c.Shards, Groups: c.Groups,
			Transport: withProxy(discord.NewTransport(), c.Proxy),
		})
	case "whatsapp":
		return whatsapp.New(name, WhatsAppStore(cfg, name), &whatsapp.Options{
			BaseURL: c.APIURL, Logger: log, DeviceName: cfg.Gateway.Name,
			Transport: withProxy(whatsapp.NewTransport(), c.Proxy),
		})
	}
	// The remaining type is telegram, because the configuration was validated.
	o := &telegram.Options{
		BaseURL: c.APIURL, Logger: log, LocalFiles: c.LocalFiles, Drafts: c.Drafts, Rich: c.Rich,
		Transport: withProxy(telegram.NewTransport(), c.Proxy),
	}
	if c.WebhookURL != "" {
		o.Webhook = &telegram.Webhook{URL: c.WebhookURL, Listen: c.WebhookListen,
			Secret: c.WebhookSecret.Reveal()}
	}
	return telegram.New(name, c.Token.Reveal(), o)
}

// withProxy makes t use the proxy if it is set. The configuration was validated.
func withProxy(t *http.Transport, proxy config.Secret) *http.Transport {
	if u, err := url.Parse(proxy.Reveal()); err == nil && u.Host != "" {
		t.Proxy = http.ProxyURL(u)
	}
	return t
}

// WhatsAppStore returns the path of the file with the keys of a WhatsApp account.
func WhatsAppStore(cfg *config.Config, name string) string {
	return filepath.Join(cfg.Gateway.Home, "whatsapp-"+name+".db")
}

// OpenMedia opens the media folder and creates it if necessary.
func OpenMedia(cfg *config.Config) (*os.Root, error) {
	dir := MediaFolder(cfg)
	root, err := OpenFolder(dir)
	if err != nil {
		return nil, NewHomeError(dir, err)
	}
	return root, nil
}

// MediaFolder returns the folder with the files that people send and get.
func MediaFolder(cfg *config.Config) string { return filepath.Join(cfg.Gateway.Home, "media") }

// MediaOptions returns the options of the media store for a configuration.
func MediaOptions(cfg *config.Config, log *slog.Logger) *media.Options {
	const mb = 1 << 20
	return &media.Options{
		MaxFile: int64(cfg.Media.MaxFileMB) * mb, MaxTotal: int64(cfg.Media.MaxTotalMB) * mb,
		Retention: compressed(cfg.Media.Retention), Offloads: compressed(cfg.Retention.Offloads),
		Every: compressed(time.Hour), Logger: log,
	}
}

// agentAccounts has the accounts of a gateway. It implements [agent.Accounts].
type agentAccounts struct {
	*Gateway
	cfg *config.Config
}

// Served reports whether messages can be sent to an account.
func (g agentAccounts) Served(account string) bool { return g.channels[account] != nil }

// TakesFiles reports whether files can be sent to a conversation.
func (g agentAccounts) TakesFiles(to bus.Address) bool {
	limiter, ok := g.channels[to.Account].(channels.Limiter)
	return ok && limiter.Limits(to).File > 0
}

// ExternalStore returns the store of an account's own data about people, or nil if it has none. It
// also returns one for a WhatsApp account that was disabled or removed but has left its file.
func (g agentAccounts) ExternalStore(account string) background.ExternalStore {
	if e, ok := g.channels[account].(channels.Eraser); ok {
		return e
	}
	path := WhatsAppStore(g.cfg, account)
	// If a channel of another platform serves the account, the file is not that of the account.
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

// Dropped removes the reactions from messages that get no answer.
func (g agentAccounts) Dropped(messages []bus.InboundMessage) { g.router.Dropped(messages) }

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
