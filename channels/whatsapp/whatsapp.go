// Package whatsapp connects the gateway to WhatsApp as a linked device of a person's account.
//
// A [Channel] is one account. [Channel.Pair] links it with a QR code or with a code that a person
// types into the phone. After that [Channel.Run] holds the connection. A message is acknowledged
// only once the gateway has stored it. Until then WhatsApp delivers it again. Its plaintext can be
// decrypted only once, so it waits in the store. The whatsmeow package implements the protocol.
//
// People are identified by their hidden id (LID), which is the same in every chat: Sender.ID and
// the address of a direct chat are "<digits>@lid". Sender.Username is "+" and the phone number, if
// it is known. The phone number ("<digits>@s.whatsapp.net") replaces an unknown hidden id. In
// groups, "<digits>@g.us", the id of a message begins with the address of its sender, because
// receipts, reactions and quotes need it.
//
// Limitations: history from before linking, calls, channels, statuses and broadcast lists are
// ignored. Polls, contacts and locations arrive as a label such as "[poll: Where?]". So do
// view-once messages, because linked devices don't get their content. There are no buttons.
// WhatsApp may ban accounts that write to strangers.
//
// A Channel owns the SQLite file that it is given, a lock file beside it, and nothing else.
package whatsapp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	waStore "go.mau.fi/whatsmeow/store"
	"go.mau.fi/whatsmeow/types"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/channels/recent"
	"gateway/channels/whatsapp/internal/mute"
	"gateway/store"
)

var (
	_ channels.Channel = (*Channel)(nil)
	_ channels.Editor  = (*Channel)(nil)
	_ channels.Leaver  = (*Channel)(nil)
	_ channels.Remover = (*Channel)(nil)
	_ channels.Typer   = (*Channel)(nil)
	_ channels.Fetcher = (*Channel)(nil)
	_ channels.Reactor = (*Channel)(nil)
	_ channels.Reader  = (*Channel)(nil)
	_ channels.Pairer  = (*Channel)(nil)
	_ channels.Limiter = (*Channel)(nil)
	_ channels.Eraser  = (*Channel)(nil)

	_ channels.Addresser    = (*Channel)(nil)
	_ channels.Deduplicator = (*Channel)(nil)
)

// A Channel is one WhatsApp account.
type Channel struct {
	name    string
	opts    Options
	log     *slog.Logger
	store   *sharedStore
	current *current                      // of the running session
	recent  messages                      // with titles and acks, kept from one connection to the next
	titles  *recent.Map[types.JID, title] // of groups
	acks    *acks
	panics  *recent.Map[string, int] // failed attempts at messages, by id

	version atomic.Pointer[waStore.WAVersionContainer] // of the client; nil: the library's
}

// Options are the optional settings of a [Channel]. The zero value is ready for use.
type Options struct {
	BaseURL    string            // WhatsApp's servers; default: their own addresses
	Transport  http.RoundTripper // default [NewTransport]
	Logger     *slog.Logger      // default discards
	DeviceName string            // in the phone's list of linked devices; default "gateway"

	PollLink    time.Duration // how often to check an unlinked account; default 2s
	ConnectWait time.Duration // how long sending waits for a connection; default 5s
	AckWait     time.Duration // first time limit for accepting a message; default 4s; see acks
	MarkWait    time.Duration // the same for a reaction; default 2s
	RateWait    time.Duration // wait after being told to slow down; default 1m
	Reconnect   time.Duration // how long to reconnect before Run ends; default 1m
	EditWindow  time.Duration // how long a message can be edited; default 20m
	HoldWait    time.Duration // how long newer messages wait for one without keys; default 10s
	Online      time.Duration // how long the account is online after it has typed; default 30s
}

// New returns a Channel for the account whose keys are in the SQLite file storePath. name is the
// account's name in the gateway. If opts is nil, it uses the defaults.
func New(name, storePath string, opts *Options) *Channel {
	o := *cmp.Or(opts, new(Options))
	if o.Transport == nil {
		o.Transport = NewTransport()
	}
	o.DeviceName = cmp.Or(o.DeviceName, "gateway")
	o.PollLink = cmp.Or(o.PollLink, 2*time.Second)
	o.ConnectWait = cmp.Or(o.ConnectWait, 5*time.Second)
	o.AckWait = cmp.Or(o.AckWait, 4*time.Second)
	o.MarkWait = cmp.Or(o.MarkWait, 2*time.Second)
	o.RateWait = cmp.Or(o.RateWait, time.Minute)
	o.Reconnect = cmp.Or(o.Reconnect, time.Minute)
	o.EditWindow = cmp.Or(o.EditWindow, 20*time.Minute)
	o.HoldWait = cmp.Or(o.HoldWait, 10*time.Second)
	o.Online = cmp.Or(o.Online, 30*time.Second)
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("account", name)
	return &Channel{
		name: name, opts: o, log: log,
		store:   &sharedStore{path: storePath, log: log, opening: make(chan struct{}, 1)},
		current: &current{changed: make(chan struct{})},
		recent:  newMessages(),
		titles:  recent.New[types.JID, title](maxTitles),
		acks:    newAcks(o.AckWait),
		panics:  recent.New[string, int](maxRecent),
	}
}

// NewTransport returns the default transport of a [Channel]. There is no limit on the time of a
// whole request, because files and the websocket take long.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       55 * time.Second,
	}
}

// Run implements [channels.Channel]. While the account is not linked, it waits, with the store
// closed, for [Channel.Pair] in this or another process.
func (c *Channel) Run(ctx context.Context, in channels.Intake) error {
	mute.SilenceSignal()
	c.current.setEnded(false)
	defer func() { c.current.setEnded(ctx.Err() != nil) }()
	// waiting says that the account was not linked. Then a store that is locked is one in which it
	// is just being linked.
	waiting := false
	for {
		err := c.connected(ctx, in)
		unlinked, ok := errors.AsType[*unlinkedError](err)
		switch {
		case ok:
			in.Report(channels.Refused, unlinked.state(c.name))
			c.log.WarnContext(ctx, "whatsapp account not linked", "reason", unlinked.Error())
		case waiting && errors.Is(err, store.ErrLocked):
			// The account is being linked.
		default:
			return err
		}
		waiting = true
		if err := c.awaitLink(ctx); err != nil {
			return err
		}
		in.Report(channels.Disconnected, "connecting")
	}
}

// awaitLink waits until the store has a linked device.
func (c *Channel) awaitLink(ctx context.Context) error {
	for channels.Sleep(ctx, c.opts.PollLink) {
		if ok, err := IsLinked(ctx, c.store.path); err == nil && ok {
			return nil
		}
	}
	return ctx.Err()
}

// connected holds the connection of a linked account until ctx is done and everything is sent,
// WhatsApp refuses the account, or an error occurs.
func (c *Channel) connected(ctx context.Context, in channels.Intake) (err error) {
	// Deferred calls run in reverse order: the store is released last, after the session has ended.
	h, err := c.store.hold(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.store.release(h)) }()
	own := h.device.GetJID() // a copy, because the client clears it when the account is logged out
	// A relinked account has another device number but the same address without it.
	if err := in.Identify(ctx, own.ToNonAD().String()); err != nil {
		return fmt.Errorf("whatsapp: %w", err)
	}
	// An earlier session may have ended before it released all messages.
	all := func(held []bus.InboundMessage) []bus.InboundMessage { return held }
	if err := in.Publish(ctx, channels.Batch{Release: all}); err != nil {
		return fmt.Errorf("whatsapp: %w", err)
	}
	s, err := c.newSession(h, in)
	if err != nil {
		return err
	}
	life, end := untilFlushed(ctx, in)
	defer end()
	err = s.run(ctx, life)
	if errors.Is(err, errOutdated) && c.renewVersion(ctx) {
		return errors.New("whatsapp: WhatsApp wants a newer client; connecting as such")
	}
	if gone, ok := errors.AsType[*unlinkedError](err); ok {
		if err := h.st.forget(ctx, own, gone.reason); err != nil {
			return fmt.Errorf("whatsapp: delete keys after logout: %w", err)
		}
	}
	return err
}

// untilFlushed returns a context that ends when ctx is done and everything is sent.
func untilFlushed(ctx context.Context, in channels.Intake) (context.Context, func()) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	// The function runs on a goroutine of its own, which ends with either context.
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-in.Flushed():
			end()
		case <-life.Done():
		}
	})
	return life, func() {
		stop()
		end()
	}
}

// An unlinkedError reports that the store has no linked device.
type unlinkedError struct{ reason unlinked }

// unlinked says why an account is not linked. The values are stored.
type unlinked int

const (
	neverLinked unlinked = 0
	loggedOut   unlinked = 401
	locked      unlinked = 403
	banned      unlinked = 406
)

func (e *unlinkedError) Error() string {
	switch e.reason {
	case loggedOut:
		return "logged out on the phone"
	case locked:
		return "WhatsApp has locked this account, or it was moved to another phone"
	case banned:
		return "WhatsApp has banned this account"
	}
	return "not linked"
}

// state describes what happened to the account with the given name, and what to do.
func (e *unlinkedError) state(name string) string {
	state := e.Error()
	switch e.reason {
	case locked:
		state += ". See what WhatsApp asks for on the phone; when it works there again"
	case banned:
		state += ". WhatsApp on the phone says why, and lets you ask for a review; when it works " +
			"there again"
	}
	return state + ": run gateway pair " + name
}

// errOffline reports that there is no connection for sending.
var errOffline = errors.New("not connected to WhatsApp")

// A current holds the session of a connected Run, for those who send. Its methods are safe for
// concurrent use.
type current struct {
	mu      sync.Mutex
	session *session      // or nil
	ended   bool          // no session will come, because Run has ended
	changed chan struct{} // closed when session or ended changes
}

// set sets the session; nil: none.
func (c *current) set(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s {
		c.session = s
		c.notify()
	}
}

// drop removes s, unless another session has replaced it.
func (c *current) drop(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
		c.notify()
	}
}

// setEnded records whether no further session will come.
func (c *current) setEnded(ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = ended
	c.notify()
}

// notify wakes those who wait. The caller holds c.mu.
func (c *current) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait returns the session. If there is none but one may come, it waits for it, up to limit.
func (c *current) wait(ctx context.Context, limit time.Duration) (*session, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		s, ended, changed := c.session, c.ended, c.changed
		c.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case ended:
			return nil, errOffline
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, errOffline
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Limits implements [channels.Limiter]. WhatsApp documents no limits for linked devices. Phones
// accept texts of 65,536 characters, but fold texts above some 4,000, and documents of 2 GB. The
// rates are those of a fast person. An account sends one message at a time anyway, and each takes a
// round trip.
func (c *Channel) Limits(bus.Address) channels.Limits {
	return channels.Limits{
		Text:         4000,
		Measure:      markup.WhatsAppLen,
		Render:       markup.WhatsApp,
		Caption:      1024,
		File:         64 << 20,
		EditInterval: 2 * time.Second,
		Chat:         channels.Rate{Every: time.Second, Burst: 5},
		Account:      channels.Rate{Every: time.Second / 20, Burst: 20},
	}
}
