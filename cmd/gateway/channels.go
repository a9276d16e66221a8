package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/discord"
	"gateway/channels/gate"
	"gateway/channels/media"
	"gateway/channels/supervisor"
	"gateway/channels/telegram"
	"gateway/channels/terminal"
	"gateway/channels/whatsapp"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// newPolicy returns who may write to an account.
func newPolicy(c config.Channel) gate.Policy {
	if c.Type == "terminal" {
		// Whoever has this process' home has all that it could protect.
		return gate.Policy{Access: gate.Open, Owners: []string{terminal.Sender}}
	}
	return gate.Policy{
		Access: gate.Access(c.Access), Allow: c.Allow, Owners: c.Owners, Groups: c.Groups,
		Always: c.Activation == "always", Phones: c.Type == "whatsapp", PerMinute: c.SenderRate,
	}
}

// newChannel returns the channel of an account.
func newChannel(cfg *config.Config, name string, log *slog.Logger) channels.Channel {
	c := cfg.Channels[name]
	switch c.Type {
	case "terminal":
		return terminal.New(name, &terminal.Options{
			Socket: socketPath(cfg.Gateway.Home), Logger: log})
	case "discord":
		return discord.New(name, c.Token.Reveal(), &discord.Options{
			BaseURL: c.APIURL, Logger: log, Shards: c.Shards, Groups: c.Groups,
			Transport: withProxy(discord.NewTransport(), c.Proxy),
		})
	case "whatsapp":
		return whatsapp.New(name, whatsappStore(cfg, name), &whatsapp.Options{
			BaseURL: c.APIURL, Logger: log, DeviceName: cfg.Gateway.Name,
			Transport: withProxy(whatsapp.NewTransport(), c.Proxy),
		})
	}
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

// withProxy makes t use the proxy, if there is one. The configuration was checked.
func withProxy(t *http.Transport, proxy config.Secret) *http.Transport {
	if u, err := url.Parse(proxy.Reveal()); err == nil && u.Host != "" {
		t.Proxy = http.ProxyURL(u)
	}
	return t
}

// whatsappStore returns the path of the file with the keys of a WhatsApp account.
func whatsappStore(cfg *config.Config, name string) string {
	return filepath.Join(cfg.Gateway.Home, "whatsapp-"+name+".db")
}

// openMedia opens the folder of the files that people send.
func openMedia(cfg *config.Config) (*os.Root, error) {
	dir := mediaFolder(cfg)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &homeError{dir, err}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &homeError{dir, err}
	}
	return root, nil
}

// mediaFolder returns the folder of the files that people send and get.
func mediaFolder(cfg *config.Config) string { return filepath.Join(cfg.Gateway.Home, "media") }

func mediaOptions(cfg *config.Config, log *slog.Logger) *media.Options {
	const mb = 1 << 20
	return &media.Options{
		MaxFile: int64(cfg.Media.MaxFileMB) * mb, MaxTotal: int64(cfg.Media.MaxTotalMB) * mb,
		Retention: compressed(cfg.Media.Retention), Offloads: compressed(cfg.Retention.Offloads),
		Every: compressed(time.Hour), Logger: log,
	}
}

func channelsCommand(load loader) *cobra.Command {
	return &cobra.Command{
		Use:   "channels",
		Short: "Show how each channel is, what it has to send or has given up, and what to do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			return withData(cmd.Context(), load, func(db *store.DB) error {
				rows, err := channelRows(cfg, db.Read(cmd.Context()))
				if err != nil {
					return err
				}
				return table(cmd.OutOrStdout(), "No channel is configured.",
					[]string{"ACCOUNT", "TYPE", "LAST MESSAGE", "TO SEND", "GIVEN UP", "STATE"}, rows)
			})
		},
	}
}

// channelRows describes the accounts, a row each.
func channelRows(cfg *config.Config, q store.Queryer) ([][]string, error) {
	states, err := supervisor.States(q)
	if err != nil {
		return nil, err
	}
	open, err := bus.NewOutbox().OpenByAccount(q)
	if err != nil {
		return nil, err
	}
	dead, err := bus.NewOutbox().DeadByAccount(q)
	if err != nil {
		return nil, err
	}
	running, err := store.Held(q, "dispatcher", time.Now())
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, name := range sortedKeys(cfg.Channels) {
		c := cfg.Channels[name]
		s, known := states[name]
		event := "never"
		if !s.Event.IsZero() {
			event = ago(s.Event) + " ago"
		}
		state := s.State + " for " + ago(s.Since)
		if strings.HasSuffix(s.State, ".") {
			state = s.State + " (for " + ago(s.Since) + ")"
		}
		switch {
		case !c.Enabled:
			state = "disabled in the configuration"
		case !running:
			state = "the gateway is not running: start it with gateway"
		case !known:
			state = "not started: restart the gateway, its configuration has changed"
		}
		rows = append(rows, []string{name, c.Type, event, fmt.Sprint(open[name]),
			fmt.Sprint(dead[name]), lines(state)})
		delete(open, name)
	}
	for _, name := range sortedKeys(open) {
		rows = append(rows, []string{name, "?", "?", fmt.Sprint(open[name]), fmt.Sprint(dead[name]),
			"not in the configuration: add it again, or see gateway outbox drop"})
	}
	return rows, nil
}
