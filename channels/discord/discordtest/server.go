// Package discordtest is a Discord that keeps its state in memory: the REST API, the websocket
// gateway and the file host, for one bot.
//
// A [Server] is as strict as Discord in all parts that the gateway uses: tokens, intents,
// lengths, components, nonces, sessions and their sequence, interactions and the time to answer
// them, expiring links. People write with [Server.Say] and press buttons with [Server.Press].
// [Server.History] returns the bot's messages, and [Server.Wait] waits for them. [Server.Inject]
// makes calls fail, and [Server.Drop] and similar methods disturb the gateway.
//
// It speaks version 9 of the API in uncompressed JSON. It is stricter than Discord in one
// respect: an unknown field is an error, which reveals misspelt ones. It limits rates only if
// [Options.Buckets] is set.
package discordtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"gateway/channels/channeltest/faults"
	"gateway/channels/channeltest/notifier"
)

// Options are the optional settings of a [Server]. The zero value is ready for use.
type Options struct {
	// Bot is the bot's account, whose ID is also that of the application; default "Gateway".
	Bot User

	// NoContent says that the Message Content Intent is switched off in the developer portal.
	NoContent bool

	// Heartbeat is the interval that the server announces; default 41.25 s.
	Heartbeat time.Duration

	// LinkTime is how long a link to a file is valid; default 24 h.
	LinkTime time.Duration

	// NonceTime is how long a nonce is remembered; default 5 min.
	NonceTime time.Duration

	// AnswerTime is how long a bot may take to answer an interaction; default 3 s.
	AnswerTime time.Duration

	// Buckets limits calls about a channel and announces the limits in answers.
	Buckets bool

	// Keep is how many messages of each channel are kept; default all.
	Keep int

	// OnSend is called with each accepted message of the bot before the bot gets its answer. It may
	// be called concurrently and must be quick.
	OnSend func(Sent)
}

// A Server is a Discord for one bot. Its methods are safe for concurrent use.
type Server struct {
	token  string
	opts   Options
	secret []byte // signs links
	base   string // set by Start

	http    *http.Server
	up      websocket.Upgrader
	closing chan struct{} // closed by Close
	close   sync.Once
	serving sync.WaitGroup

	mu           sync.Mutex
	bot          User
	owner        string // of the bot's application; "" if unknown
	flags        int    // of the bot's application
	lastID       uint64
	users        map[string]User
	guilds       map[string]*guild
	channels     map[string]*channel
	nonces       map[string]nonce
	interactions map[string]*Interaction
	commands     []Command
	sessions     map[string]*session
	conns        map[*conn]bool
	gateway      gatewayFaults
	faults       faults.Queue[Fault, string]
	calls        map[string]int
	buckets      map[string]*bucket
	limited      int
	changed      notifier.Notifier // notified at each change
}

// New returns a Server for the bot with the given token. A nil opts means the defaults.
func New(token string, opts *Options) *Server {
	o := *cmp.Or(opts, new(Options))
	o.Bot.ID = cmp.Or(o.Bot.ID, "900000000000000001")
	o.Bot.Username = cmp.Or(o.Bot.Username, "gateway")
	o.Bot.Name = cmp.Or(o.Bot.Name, "Gateway")
	o.Bot.Bot = true
	o.Heartbeat = cmp.Or(o.Heartbeat, 41250*time.Millisecond)
	o.LinkTime = cmp.Or(o.LinkTime, 24*time.Hour)
	o.NonceTime = cmp.Or(o.NonceTime, 5*time.Minute)
	o.AnswerTime = cmp.Or(o.AnswerTime, 3*time.Second)
	s := &Server{
		token:        token,
		opts:         o,
		secret:       []byte(rand.Text()),
		closing:      make(chan struct{}),
		bot:          o.Bot,
		users:        map[string]User{o.Bot.ID: o.Bot},
		guilds:       make(map[string]*guild),
		channels:     make(map[string]*channel),
		nonces:       make(map[string]nonce),
		interactions: make(map[string]*Interaction),
		sessions:     make(map[string]*session),
		conns:        make(map[*conn]bool),
		calls:        make(map[string]int),
		buckets:      make(map[string]*bucket),
	}
	s.SetContentIntent(true)
	// Clients open connections that they use much later. Closing one at that moment would lose the
	// call, so this time is longer than clients keep unused connections.
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 2 * time.Minute}
	return s
}

// Start listens on a free loopback port and serves until Close. It returns the base URL, which
// replaces https://discord.com and the hosts of files.
func (s *Server) Start(ctx context.Context) (baseURL string, err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.base = "http://" + ln.Addr().String()
	s.serving.Go(func() {
		_ = s.http.Serve(ln) // ErrServerClosed, after Close
	})
	return s.base, nil
}

// Close ends every call and every gateway connection and stops listening.
func (s *Server) Close() {
	s.close.Do(func() { close(s.closing) })
	_ = s.http.Close() // the listener may already be closed
	s.Drop()
	s.serving.Wait()
}

// Wait waits until cond returns true, and returns nil, or ctx's error if ctx is done first. It
// calls cond immediately and after each change of the server's state.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	return s.changed.Wait(ctx, cond)
}

// change calls f with s.mu held.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// locked returns the result of f, which it calls with s.mu held.
func locked[T any](s *Server, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// Calls returns how often one of the methods in [Fault] was called, including failed calls.
func (s *Server) Calls(method string) int {
	return locked(s, func() int { return s.calls[method] })
}

// Commands returns the bot's global commands.
func (s *Server) Commands() []Command { return locked(s, func() []Command { return s.commands }) }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := s.route(r)
	s.mu.Lock()
	s.calls[c.method]++
	token := s.token
	s.changed.Notify()
	s.mu.Unlock()
	switch {
	case c.method == "":
		write(w, refuse(http.StatusNotFound, 0, "404: Not Found"))
		return
	case !c.open() && r.Header.Get("Authorization") != "Bot "+token:
		write(w, refuse(http.StatusUnauthorized, 0, "401: Unauthorized"))
		return
	case c.method != "file" && c.method != "gateway" &&
		!strings.HasPrefix(r.Header.Get("User-Agent"), "DiscordBot ("):
		write(w, refuse(http.StatusForbidden, 40333, "internal network error: no user agent"))
		return
	}
	if refused := c.read(r); refused.status != 0 {
		write(w, refused)
		return
	}
	s.mu.Lock()
	fault, failing := s.meet(c)
	limit, ok := s.allow(c)
	s.changed.Notify()
	s.mu.Unlock()
	if failing {
		s.fail(w, r, c, fault)
		return
	}
	if !ok {
		answer := refuse(http.StatusTooManyRequests, 0, "You are being rate limited.")
		answer.retryAfter = limit.after
		write(w, answer)
		return
	}
	if limit != nil {
		for name, value := range limit.headers() {
			w.Header().Set(name, value)
		}
	}
	switch c.method {
	case "gateway":
		s.serveGateway(w, r)
	case "file":
		s.serveFile(w, r)
	default:
		write(w, s.execute(c))
	}
}
