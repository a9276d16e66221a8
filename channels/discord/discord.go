// Package discord connects the gateway to Discord.
//
// A [Channel] is one bot. It receives messages from the websocket gateway and sends with the REST
// API, both with the discordgo library. Discord has no acknowledgements: after a gap the bot reads
// the missed messages from its cursors, one message id per channel. Before the bot looks up a new
// channel, which may take long, it stores a provisional cursor for it.
//
// A dropped connection is resumed, and Discord then replays missed events, including presses of
// buttons. The library resumes a Session when it is opened again. This package opens it, because
// the library's own loop has no context. If resuming fails, Run returns: the next Run identifies
// anew and reads each known channel from its cursor. Run also returns if the library is stuck: it
// blocks forever if Discord tells it to reconnect while it opens.
//
// Objects, limits and codes are described at https://discord.com/developers/docs.
//
// Limitations: at most 1,000 messages per channel are read after a gap. If the session could not be
// resumed, edits and presses during the gap are lost, and so are messages from unknown direct
// chats, because a bot can't list those. A thread of a listed channel that began in the gap is
// found unless it was archived again. Stickers and polls arrive as a label; embeds are ignored.
// Discord remembers a nonce for a few minutes; before a later retry the channel searches for the
// text of the part.
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
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
	"golang.org/x/sync/errgroup"

	"gateway/channels"
	"gateway/channels/recent"
)

var (
	_ channels.Channel   = (*Channel)(nil)
	_ channels.Editor    = (*Channel)(nil)
	_ channels.Remover   = (*Channel)(nil)
	_ channels.Typer     = (*Channel)(nil)
	_ channels.Fetcher   = (*Channel)(nil)
	_ channels.Reactor   = (*Channel)(nil)
	_ channels.Commander = (*Channel)(nil)

	_ channels.ServerFinder = (*Channel)(nil)

	_ channels.Limiter = (*Channel)(nil)
	_ channels.Pacer   = (*Channel)(nil)
)

// A Channel is one Discord bot.
type Channel struct {
	name  string
	token string
	opts  Options
	log   *slog.Logger
	web   *transport
	rest  *discordgo.Session // for REST calls only
	bad   error              // error in the options, or nil

	groups atomic.Pointer[[]string] // see Options.Groups

	// These two outlive a run: they concern the start of the next one.
	missed missed
	denied *recent.Map[string, int] // how often each channel has denied access; see isGone
}

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	BaseURL   string            // replaces https://discord.com and the hosts of files
	Transport http.RoundTripper // default [NewTransport]; also gives the gateway its proxy and dialer
	Logger    *slog.Logger      // default discards

	// Groups are the ids of the guild channels in which the gateway answers. After a gap they and
	// their threads are read even if nothing of them is stored, from the newest position in the
	// account's other channels. If nothing at all is stored, they are not read.
	Groups []string

	Shards        int           // gateway connections among which the guilds are divided; default 1
	IdentifyEvery time.Duration // time between the connections of two shards; default 5s

	Queue       int           // maximum number of events waiting to be stored; default 1000
	OpenTimeout time.Duration // time limit for connecting to the gateway; default 30s
	Silence     time.Duration // until a silent connection is given up; default 103s, 2.5 heartbeats
	Postpone    time.Duration // longest pause before another try to read or resume; default 30s
}

// New returns a Channel for the bot with the given token. name is the account's name in the
// gateway. If opts is nil, it uses the defaults.
func New(name, token string, opts *Options) *Channel {
	o := *cmp.Or(opts, new(Options))
	o.Transport = cmp.Or[http.RoundTripper](o.Transport, NewTransport())
	o.Shards = max(o.Shards, 1)
	o.IdentifyEvery = cmp.Or(o.IdentifyEvery, 5*time.Second)
	o.Queue = cmp.Or(o.Queue, 1000)
	o.OpenTimeout = cmp.Or(o.OpenTimeout, 30*time.Second)
	o.Silence = cmp.Or(o.Silence, 103*time.Second)
	o.Postpone = cmp.Or(o.Postpone, 30*time.Second)
	c := &Channel{
		name: name, token: token, opts: o,
		log:    cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		web:    &transport{next: o.Transport},
		denied: recent.New[string, int](10_000),
	}
	if o.BaseURL != "" {
		c.web.base, c.bad = parseBase(o.BaseURL)
	}
	c.SetGroups(o.Groups)
	c.rest = library(c.token)
	c.rest.Client = &http.Client{Transport: c.web, CheckRedirect: noRedirects}
	return c
}

// SetGroups replaces [Options.Groups]. The new list counts from the next gap on. Entries that are
// not ids are ignored, such as "*", which stands for all channels.
func (c *Channel) SetGroups(groups []string) {
	ids := slices.DeleteFunc(slices.Clone(groups), func(id string) bool { return idNumber(id) == 0 })
	c.groups.Store(&ids)
}

// parseBase parses an address. Its error does not contain the address, which might contain a
// password.
func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// Only Run checks the error. Other calls must fail, too, instead of reaching Discord.
		return &url.URL{Scheme: "http", Host: "invalid."}, errors.New("api_url is not a valid address")
	}
	return u, nil
}

// noRedirects makes a client not follow redirects, which could lead anywhere.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// library returns a session of discordgo that does nothing on its own.
func library(token string) *discordgo.Session {
	dg, _ := discordgo.New("Bot " + token) // it never fails
	dg.SyncEvents = true                   // otherwise messages arrive out of order
	// The library's caches would grow with the guilds and their members. directory has what is
	// needed.
	dg.StateEnabled = false
	// shard reconnects, and the callers of the REST API decide about retries.
	dg.ShouldReconnectOnError = false
	dg.ShouldReconnectVoiceOnSessionError = false
	dg.ShouldRetryOnRateLimit = false
	dg.MaxRestRetries = 0
	dg.LogLevel = -1 // its log would contain messages of people
	// Message content is a privileged intent, which a person must switch on: see shard.classify.
	dg.Identify.Intents = discordgo.IntentsGuildMessages | discordgo.IntentsDirectMessages |
		discordgo.IntentMessageContent
	return dg
}

// NewTransport returns the default transport of a [Channel]. It keeps many idle connections to one
// host, because many chats may be answered at once.
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
		HTTP2: &http.HTTP2Config{ // detects a dead connection, which all calls share
			SendPingTimeout: 15 * time.Second,
			PingTimeout:     10 * time.Second,
		},
	}
}

// Run implements [channels.Channel].
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	// The goroutines of idle connections would remain. Sending opens new ones.
	defer (&http.Client{Transport: c.opts.Transport}).CloseIdleConnections()
	if c.bad != nil {
		return fmt.Errorf("discord: %w", c.bad)
	}
	var me user
	if err := c.get(ctx, discordgo.EndpointUser("@me"), &me); err != nil {
		return fmt.Errorf("discord: get own account: %w", err)
	}
	if err := in.Identify(ctx, me.ID); err != nil {
		return fmt.Errorf("discord: %w", err)
	}
	if err := awaitStart(ctx, c, in); err != nil {
		return fmt.Errorf("discord: %w", err)
	}
	cursors, err := in.Cursors(ctx)
	if err != nil {
		return fmt.Errorf("discord: read cursors: %w", err)
	}
	// All shards share the feed. Its worker goroutines end before run returns, and end then records
	// what is left.
	f := newFeed(c, in, me, cursors)
	defer f.end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.run(ctx) })
	for i := range c.opts.Shards {
		g.Go(func() error {
			// Discord limits how often a bot may identify, so the shards begin one after another.
			if !channels.Sleep(ctx, time.Duration(i)*c.opts.IdentifyEvery) {
				return ctx.Err()
			}
			return newShard(c, in, f.backlog, i).run(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("discord: %w", err)
	}
	return nil
}
