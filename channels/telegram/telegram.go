// Package telegram connects the gateway to the Telegram Bot API.
//
// A [Channel] is one bot. It receives by long polling, so it needs no public address, and
// acknowledges an update only once the gateway has stored it: the offset of the next getUpdates
// call is the cursor of the last stored batch. It sends Markdown as Telegram's HTML.
//
// Methods, objects and limits are described at https://core.telegram.org/bots/api. The
// tgbotapi package, which ends at version 5.5 of that API, serves as transport only.
//
// Limits: text goes both ways, media come in as an honest label such as "[photo]". Telegram
// has no idempotency key, so a part whose answer was lost may be shown twice.
package telegram

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/bus"
	"gateway/channels"
)

var (
	_ channels.Channel   = (*Channel)(nil)
	_ channels.Editor    = (*Channel)(nil)
	_ channels.Remover   = (*Channel)(nil)
	_ channels.Typer     = (*Channel)(nil)
	_ channels.Commander = (*Channel)(nil)
	_ channels.Limiter   = (*Channel)(nil)
)

// A Channel is one Telegram bot.
type Channel struct {
	name        string
	token       string
	api         tgbotapi.BotAPI // copied for each call, never used itself
	transport   http.RoundTripper
	log         *slog.Logger
	pollTimeout time.Duration
}

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	BaseURL     string            // Bot API server; default https://api.telegram.org
	Transport   http.RoundTripper // default [NewTransport]
	Logger      *slog.Logger      // default discards
	PollTimeout time.Duration     // how long getUpdates waits; whole seconds, default 50s
}

// New returns a Channel for the bot with the given token, known to the gateway as name. A nil
// opts means the defaults.
func New(name, token string, opts *Options) *Channel {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	c := &Channel{
		name:        name,
		token:       token,
		transport:   o.Transport,
		log:         cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		pollTimeout: cmp.Or(o.PollTimeout, 50*time.Second),
	}
	if c.transport == nil {
		c.transport = NewTransport()
	}
	c.api.Token = url.PathEscape(token) // a bad token must not show in a URL error
	base := strings.TrimRight(cmp.Or(o.BaseURL, "https://api.telegram.org"), "/")
	c.api.SetAPIEndpoint(strings.ReplaceAll(base, "%", "%%") + "/bot%s/%s")
	return c
}

// NewTransport returns the transport that a [Channel] uses by default: many idle connections
// to one host, because thousands of chats are answered at once, and none of them older than
// the server's own keep-alive.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 512,
		IdleConnTimeout:     55 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 15 * time.Second, // notices a dead connection under a long poll
			PingTimeout:     10 * time.Second,
		},
	}
}

// Run implements [channels.Channel]. It returns an error that names the cause if another
// program polls for the bot or a webhook is set; calling it again is right for both.
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	defer c.closeIdle()
	me, err := c.getMe(ctx)
	if err != nil {
		return fmt.Errorf("telegram: get own account: %w", err)
	}
	cursors, err := in.Cursors(ctx)
	if err != nil {
		return fmt.Errorf("telegram: read cursor: %w", err)
	}
	cursor := cursors[""]
	in.Report("connected as @" + me.Username)
	c.log.InfoContext(ctx, "telegram connected", "account", c.name, "username", me.Username)
	for {
		updates, err := c.getUpdates(ctx, cursor)
		if err != nil {
			return fmt.Errorf("telegram: get updates: %w", err)
		}
		if len(updates) == 0 {
			continue // nobody wrote while the poll waited
		}
		batch, err := c.batch(ctx, me, updates)
		if err != nil {
			return fmt.Errorf("telegram: get updates: %w", err)
		}
		if err := in.Publish(ctx, batch); err != nil {
			return fmt.Errorf("telegram: store %d updates: %w", len(updates), err)
		}
		cursor = batch.Cursor // the next getUpdates acknowledges what is stored now
	}
}

// closeIdle ends the goroutines of connections that nobody uses. Sending opens new ones.
func (c *Channel) closeIdle() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

func (c *Channel) getMe(ctx context.Context) (user, error) {
	result, err := c.call(ctx, callTimeout, "getMe", nil)
	if err != nil {
		return user{}, verdict(err, false)
	}
	var me user
	if err := json.Unmarshal(result, &me); err != nil {
		return user{}, errors.New("the answer makes no sense; is api_url a Bot API server?")
	}
	return me, nil
}

// getUpdates waits for updates from cursor on and returns them undecoded.
func (c *Channel) getUpdates(ctx context.Context, cursor string) ([]json.RawMessage, error) {
	seconds := int(c.pollTimeout / time.Second)
	p := tgbotapi.Params{
		"timeout":         strconv.Itoa(seconds),
		"allowed_updates": `["message"]`,
	}
	p.AddNonEmpty("offset", cursor)
	result, err := c.call(ctx, c.pollTimeout+15*time.Second, "getUpdates", p)
	if err != nil {
		return nil, verdict(err, false)
	}
	var updates []json.RawMessage
	if err := json.Unmarshal(result, &updates); err != nil {
		return nil, errors.New("the answer is no list of updates")
	}
	return updates, nil
}

// batch translates updates. Its cursor follows the last of them, whatever the ids before it:
// after a week without messages Telegram may begin again with lower ones.
func (c *Channel) batch(
	ctx context.Context, me user, updates []json.RawMessage,
) (channels.Batch, error) {
	var b channels.Batch
	b.Messages = make([]bus.InboundMessage, 0, len(updates))
	for _, raw := range updates {
		var u update
		err := json.Unmarshal(raw, &u)
		if u.ID != 0 {
			b.Cursor = strconv.FormatInt(u.ID+1, 10)
		}
		if err != nil {
			// Error would show a value of the update, which is a person's text.
			c.log.WarnContext(ctx, "update skipped: not understood", "account", c.name, "id", u.ID)
			continue
		}
		if u.Message == nil {
			continue
		}
		if m, ok := c.inbound(me, u.Message); ok {
			b.Messages = append(b.Messages, m)
		}
	}
	if b.Cursor == "" {
		return b, errors.New("updates without an id, which can't be acknowledged")
	}
	return b, nil
}
