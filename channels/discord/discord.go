// Package discord connects the gateway to Discord.
//
// A [Channel] is one bot. It receives messages from the websocket gateway and sends by the REST
// API, both through the discordgo library. Discord has no acknowledgement: the bot reads messages
// that it missed from the cursor, which is a message id for each channel.
//
// A connection that drops is resumed, so that Discord replays missed events, presses of buttons
// too; the library resumes one Session when it is opened again, and we open it ourselves, because
// its own loop knows no context. When that does not work, Run returns: the next one identifies anew
// and reads every known channel from its cursor. It is also how Run ends when the library is stuck,
// which it is for ever if it is told to reconnect as it opens.
//
// Objects, limits and codes are described at https://discord.com/developers/docs.
//
// Limits: up to 1,000 messages of each channel are read after a gap. Edits and presses in a gap
// that could not be resumed are lost, and so are messages of that time from a direct chat that was
// not known before: a bot can't list those. A thread of a listed channel that began in a gap is
// found unless it was archived before the gap ended. Stickers and polls come as a label, embeds not
// at all. Discord remembers a nonce for a few minutes; before a later retry the channel is searched
// for the text of the part.
package discord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"
	"golang.org/x/sync/errgroup"

	"gateway/channels"
)

var (
	_ channels.Channel   = (*Channel)(nil)
	_ channels.Editor    = (*Channel)(nil)
	_ channels.Remover   = (*Channel)(nil)
	_ channels.Typer     = (*Channel)(nil)
	_ channels.Fetcher   = (*Channel)(nil)
	_ channels.Reactor   = (*Channel)(nil)
	_ channels.Commander = (*Channel)(nil)
	_ channels.Limiter   = (*Channel)(nil)
	_ channels.Pacer     = (*Channel)(nil)
)

// A Channel is one Discord bot.
type Channel struct {
	name  string
	token string
	opts  Options
	log   *slog.Logger
	web   *transport
	rest  *discordgo.Session // makes REST calls only
	bad   error              // of the options, or nil

	missed missed
	denied denied
}

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	BaseURL   string            // instead of https://discord.com and the hosts of files
	Transport http.RoundTripper // default [NewTransport]; its proxy and dialer serve the gateway, too
	Logger    *slog.Logger      // default discards

	// Groups are the ids of the guild channels that the gateway answers in. After a gap they and
	// their threads are read although nothing of them was stored before, from where the account's
	// other channels were last; not at all if nothing was stored yet.
	Groups []string

	Shards        int           // gateway connections that share the guilds; default 1
	IdentifyEvery time.Duration // time between two shards that connect; default 5s

	Queue       int           // events that wait to be stored; default 1000
	OpenTimeout time.Duration // for connecting to the gateway; default 30s
	Silence     time.Duration // after which a connection is given up; default 103s, 2.5 heartbeats
	Postpone    time.Duration // until a channel that can't be read is tried again; default 30s
}

// New returns a Channel for the bot with the given token, known to the gateway as name. A nil
// opts means the defaults.
func New(name, token string, opts *Options) *Channel {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Transport == nil {
		o.Transport = NewTransport()
	}
	o.Shards = max(o.Shards, 1)
	o.IdentifyEvery = cmp.Or(o.IdentifyEvery, 5*time.Second)
	o.Queue = cmp.Or(o.Queue, 1000)
	o.OpenTimeout = cmp.Or(o.OpenTimeout, 30*time.Second)
	o.Silence = cmp.Or(o.Silence, 103*time.Second)
	o.Postpone = cmp.Or(o.Postpone, 30*time.Second)
	c := &Channel{
		name: name, token: token, opts: o,
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		web: &transport{next: o.Transport},
	}
	if o.BaseURL != "" {
		c.web.base, c.bad = parseBase(o.BaseURL)
	}
	c.rest = c.library()
	c.rest.Client = &http.Client{Transport: c.web, CheckRedirect: stay}
	return c
}

// parseBase returns an error without the address, which might contain a password.
func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return &url.URL{Scheme: "http", Host: "invalid."}, errors.New("api_url is not a valid address")
	}
	return u, nil
}

// stay keeps a client from following redirects, which could lead anywhere.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// library returns a session of discordgo that does nothing by itself.
func (c *Channel) library() *discordgo.Session {
	dg, _ := discordgo.New("Bot " + c.token) // it has no way to fail
	dg.SyncEvents = true                     // else the order of messages is lost
	dg.StateEnabled = false
	dg.ShouldReconnectOnError = false
	dg.ShouldReconnectVoiceOnSessionError = false
	dg.ShouldRetryOnRateLimit = false
	dg.MaxRestRetries = 0
	dg.LogLevel = -1 // it logs what people write
	dg.Identify.Intents = discordgo.IntentsGuildMessages | discordgo.IntentsDirectMessages |
		discordgo.IntentMessageContent
	return dg
}

// NewTransport returns the transport that a [Channel] uses by default.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        128,
		MaxIdleConnsPerHost: 128,
		IdleConnTimeout:     55 * time.Second,
		ForceAttemptHTTP2:   true,
	}
}

// Run implements [channels.Channel].
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	defer c.closeIdle()
	if c.bad != nil {
		return fmt.Errorf("discord: %w", c.bad)
	}
	var me user
	if err := c.ask(ctx, http.MethodGet, discordgo.EndpointUser("@me"), nil, &me); err != nil {
		return fmt.Errorf("discord: get own account: %w", err)
	}
	if err := in.Identify(ctx, me.ID); err != nil {
		return fmt.Errorf("discord: %w", err)
	}
	cursors, err := in.Cursors(ctx)
	if err != nil {
		return fmt.Errorf("discord: read cursors: %w", err)
	}
	f := newFeed(c, in, me, cursors)
	defer f.end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.run(ctx) })
	for i := range c.opts.Shards {
		g.Go(func() error {
			if !channels.Sleep(ctx, time.Duration(i)*c.opts.IdentifyEvery) {
				return ctx.Err()
			}
			return newShard(c, f, i).run(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("discord: %w", err)
	}
	return nil
}

// closeIdle ends the goroutines of connections that nobody uses. Sending opens new ones.
func (c *Channel) closeIdle() {
	if t, ok := c.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
