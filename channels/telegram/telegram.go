// Package telegram connects the gateway to the Telegram Bot API.
//
// A [Channel] is one bot. It receives updates by long polling, which needs no public address, or by
// a [Webhook]. It acknowledges an update only after the gateway has stored it: the offset of the
// next getUpdates call is the cursor of the last stored batch, and a call of the webhook is
// answered after its update is stored. It sends Markdown as Telegram's HTML, and each file with the
// method for its type.
//
// Methods, objects and limits are described at https://core.telegram.org/bots/api. The tgbotapi
// package, which supports that API up to version 5.5, serves only as transport.
//
// Limitations: stickers, stories, polls, places and the like arrive as a label such as "[sticker:
// 😀]". Files above 20 MB can be fetched only with your own Bot API server. Telegram has no
// idempotency keys, so a part whose answer was lost may be shown twice.
package telegram

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gateway/channels"
	"gateway/channels/recent"
)

var (
	_ channels.Channel   = (*Channel)(nil)
	_ channels.Editor    = (*Channel)(nil)
	_ channels.Drafter   = (*Channel)(nil)
	_ channels.Leaver    = (*Channel)(nil)
	_ channels.Remover   = (*Channel)(nil)
	_ channels.Typer     = (*Channel)(nil)
	_ channels.Fetcher   = (*Channel)(nil)
	_ channels.Reactor   = (*Channel)(nil)
	_ channels.Commander = (*Channel)(nil)
	_ channels.Limiter   = (*Channel)(nil)
)

// A Channel is one Telegram bot.
type Channel struct {
	name    string
	api     *client
	log     *slog.Logger
	stall   time.Duration // time without progress after which a transfer is given up
	answer  time.Duration // time limit for confirming a press
	inspect time.Duration // time between two looks at the webhook
	webhook *Webhook
	drafts  bool // see [Options]; likewise rich
	rich    bool

	moves    chan move // groups that have become supergroups, as refusals of Telegram say
	previous *recent.Map[writer, previous]

	// Neither is ever cleared: a newer server is noticed after a restart of the gateway.
	noDrafts, noRich atomic.Bool // the server does not know the method
}

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	BaseURL   string            // Bot API server; default https://api.telegram.org
	Transport http.RoundTripper // default [NewTransport]
	Logger    *slog.Logger      // default discards

	// Webhook makes Telegram call the gateway. If it is nil, the channel polls.
	Webhook *Webhook

	// LocalFiles is the folder in which your own Bot API server, run with --local, stores files.
	// The channel reads them from there, without the limits of api.telegram.org.
	LocalFiles string

	// Drafts shows growing answers as drafts in direct chats.
	Drafts bool

	// Rich sends Markdown unchanged, so that Telegram shows tables, headings and formulas. Old
	// clients show a request to update the app instead.
	Rich bool
}

// New returns a Channel for the bot with the given token. name is the account's name in the
// gateway. If opts is nil, it uses the defaults.
func New(name, token string, opts *Options) *Channel {
	o := *cmp.Or(opts, new(Options))
	return &Channel{
		name:     name,
		api:      newClient(token, o),
		log:      cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		stall:    stallTimeout,
		answer:   answerTimeout,
		inspect:  inspectTime,
		webhook:  o.Webhook,
		drafts:   o.Drafts,
		rich:     o.Rich,
		moves:    make(chan move, maxMoves),
		previous: recent.New[writer, previous](maxWriters),
	}
}

// Run implements [channels.Channel]. If another program polls for the bot or a webhook is set, it
// returns an error that says so, and may be called again.
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	// The goroutines of idle connections would remain. Sending opens new ones.
	defer (&http.Client{Transport: c.api.transport}).CloseIdleConnections()
	if err := c.webhook.check(); err != nil {
		return fmt.Errorf("telegram: %w", err)
	}
	// This call comes first. It detects a wrong token, and its result tells the user name of the
	// bot, without which a mention can't be recognised.
	me, err := c.api.getMe(ctx)
	if err != nil {
		return fmt.Errorf("telegram: get own account: %w", err)
	}
	if err := in.Identify(ctx, strconv.FormatInt(me.ID, 10)); err != nil {
		return fmt.Errorf("telegram: %w", err)
	}
	r := newReceiver(c, me, in)
	ctx, cancel := context.WithCancel(ctx)
	// Deferred calls run in reverse order: cancel ends answerPresses, and Wait then waits for it.
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { r.answerPresses(ctx) })
	background.Go(func() { r.storeMoves(ctx) })
	if c.webhook != nil {
		err = r.listen(ctx, c.webhook)
	} else {
		err = r.poll(ctx)
	}
	return fmt.Errorf("telegram: %w", err)
}
