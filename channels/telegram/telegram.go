// Package telegram connects the gateway to the Telegram Bot API.
//
// A [Channel] is one bot. It receives by long polling, so it needs no public address, or by a
// [Webhook]. It acknowledges an update only once the gateway has stored it: the offset of the
// next getUpdates call is the cursor of the last stored batch, and a webhook's call is answered
// after that. It sends Markdown as Telegram's HTML, and each file by the method for its type.
//
// Methods, objects and limits are described at https://core.telegram.org/bots/api. The
// tgbotapi package, which ends at version 5.5 of that API, serves as transport only.
//
// Limits: stickers, stories, polls, places and the like come in as a label such as "[sticker: 😀]";
// files above 20 MB can't be fetched unless you run your own Bot API server. Telegram has no
// idempotency key, so a part whose answer was lost may be shown twice.
package telegram

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"gateway/channels"
)

var (
	_ channels.Channel   = (*Channel)(nil)
	_ channels.Editor    = (*Channel)(nil)
	_ channels.Drafter   = (*Channel)(nil)
	_ channels.Remover   = (*Channel)(nil)
	_ channels.Typer     = (*Channel)(nil)
	_ channels.Fetcher   = (*Channel)(nil)
	_ channels.Reactor   = (*Channel)(nil)
	_ channels.Commander = (*Channel)(nil)
	_ channels.Limiter   = (*Channel)(nil)
)

// A Channel is one Telegram bot.
type Channel struct {
	name        string
	token       string
	base        string          // of all URLs, without a slash at its end
	api         tgbotapi.BotAPI // copied for each call, never used itself
	transport   http.RoundTripper
	log         *slog.Logger
	pollTimeout time.Duration
	stall       time.Duration // after which a transfer without progress is given up
	answer      time.Duration // that telling Telegram of a noticed press may take
	webhook     *Webhook
	localFiles  string
	drafts      bool
	rich        bool

	noDrafts, noRich atomic.Bool // the server turned out not to know the method
}

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	BaseURL     string            // Bot API server; default https://api.telegram.org
	Transport   http.RoundTripper // default [NewTransport]
	Logger      *slog.Logger      // default discards
	PollTimeout time.Duration     // how long getUpdates waits; whole seconds, default 50s

	// Webhook makes Telegram call the gateway; nil means long polling.
	Webhook *Webhook

	// LocalFiles is the folder in which a Bot API server of one's own, run with --local, keeps
	// files. Files below it are read from there, without the bounds of api.telegram.org.
	LocalFiles string

	// Drafts lets answers be shown as drafts while they are written, in direct chats.
	Drafts bool

	// Rich sends Markdown as it is, for Telegram to show tables, headings and formulas. Clients
	// that are too old show a request to be updated instead of the message.
	Rich bool
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
		base:        strings.TrimRight(cmp.Or(o.BaseURL, "https://api.telegram.org"), "/"),
		transport:   o.Transport,
		log:         cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		pollTimeout: cmp.Or(o.PollTimeout, 50*time.Second),
		stall:       stallTimeout,
		answer:      answerTimeout,
		webhook:     o.Webhook,
		localFiles:  o.LocalFiles,
		drafts:      o.Drafts,
		rich:        o.Rich,
	}
	if c.transport == nil {
		c.transport = NewTransport()
	}
	c.api.Token = url.PathEscape(token) // a bad token must not show in a URL error
	c.api.SetAPIEndpoint(strings.ReplaceAll(c.base, "%", "%%") + "/bot%s/%s")
	return c
}

// Run implements [channels.Channel]. It returns an error that names the cause if another
// program polls for the bot or a webhook is set; calling it again is right for both.
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	defer c.closeIdle()
	if err := c.webhook.check(); err != nil {
		return fmt.Errorf("telegram: %w", err)
	}
	me, err := c.getMe(ctx)
	if err != nil {
		return fmt.Errorf("telegram: get own account: %w", err)
	}
	if err := in.Identify(ctx, strconv.FormatInt(me.ID, 10)); err != nil {
		return fmt.Errorf("telegram: %w", err)
	}
	r := newReceiver(c, me, in)
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { r.answerPresses(ctx) })
	if c.webhook != nil {
		err = r.listen(ctx, c.webhook)
	} else {
		err = r.poll(ctx)
	}
	return fmt.Errorf("telegram: %w", err)
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
		return user{}, classify(err, false)
	}
	var me user
	if err := json.Unmarshal(result, &me); err != nil {
		return user{}, errors.New("the answer makes no sense; is api_url a Bot API server?")
	}
	return me, nil
}
