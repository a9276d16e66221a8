// Package telegramtest is a Telegram Bot API server that keeps its state in memory.
//
// A [Server] implements the methods that the gateway uses, and is as strict about them as
// api.telegram.org: token, parameters, HTML, lengths, files, keyboards, chats, topics, offsets
// and the single long poll. People write with [Server.Say] and similar methods, and press
// buttons with [Server.Press]. [Server.History] returns the bot's messages, and [Server.Wait]
// waits for them. [Server.Inject] makes calls fail. A webhook that the bot sets is called.
//
// It has one bot, uses separate message ids for each chat (as Telegram does in supergroups) and
// accepts parameters only as a form. It is stricter than Telegram in one respect: an unknown
// parameter is an error, which reveals misspelt ones. It does not check the Markdown of rich
// messages.
package telegramtest

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gateway/channels/channeltest/faults"
	"gateway/channels/channeltest/notifier"
)

// Options are the optional settings of a [Server]. The zero value is ready for use.
type Options struct {
	// Bot is the bot's account; default "Gateway", @gateway_bot.
	Bot User

	// Keep is how many messages of each chat are kept; default all. Other messages can't be edited
	// or quoted.
	Keep int

	// OnSend is called with each accepted message before the bot gets its answer. It may be called
	// concurrently and must be quick.
	OnSend func(Sent)

	// Missing are methods that the server does not have, like an old server.
	Missing []string

	// LocalFiles is the folder of a server that runs with --local. It stores files of any size
	// there and identifies them by their path.
	LocalFiles string
}

// A Server is a Bot API server for one bot. Its methods are safe for concurrent use.
type Server struct {
	token string
	bot   User
	opts  Options

	http    *http.Server
	closing chan struct{} // closed by Close
	close   sync.Once
	serving sync.WaitGroup

	connections atomic.Int64

	mu         sync.Mutex
	users      map[int64]User
	chats      map[int64]*chat
	queue      []queued // unconfirmed updates, oldest first
	lastUpdate int64
	restarted  bool // update ids were restarted and no new one was served yet
	poll       *poll
	hook       *hook           // nil: no webhook
	allowed    map[string]bool // kinds of updates; nil: all
	presses    map[string]bool // ids of callback queries, with whether they were answered
	pressOrder []string
	files      map[string]*stored // by id
	commands   []Command
	faults     faults.Queue[Fault, int64]
	hanging    map[int64]int // current hanging calls, by chat
	calls      map[string]int
	changed    notifier.Notifier // notified at each change
}

// A Command is an entry of the bot's menu.
type Command struct {
	Command     string `json:"command"`
	Description string `json:"description"`
}

// New returns a Server for the bot with the given token. A nil opts means the defaults.
func New(token string, opts *Options) *Server {
	o := *cmp.Or(opts, new(Options))
	s := &Server{
		token:      token,
		bot:        cmp.Or(o.Bot, User{ID: 7000000001, First: "Gateway", Username: "gateway_bot"}),
		opts:       o,
		closing:    make(chan struct{}),
		users:      make(map[int64]User),
		chats:      make(map[int64]*chat),
		presses:    make(map[string]bool),
		files:      make(map[string]*stored),
		lastUpdate: 100_000,
		hanging:    make(map[int64]int),
		calls:      make(map[string]int),
	}
	s.bot.Bot = true
	s.users[s.bot.ID] = s.bot
	// Clients open connections that they use much later. Closing one at that moment would lose the
	// call, so this time is longer than clients keep unused connections.
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 2 * time.Minute,
		ConnState: s.countConnection}
	return s
}

func (s *Server) countConnection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.connections.Add(1)
	case http.StateClosed:
		s.connections.Add(-1)
		s.changed.Notify()
	}
}

// Connections returns the number of open connections. It is 0 once all calls of finished clients
// are served.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// Start listens on a free loopback port and serves until Close. It returns the base URL, which
// replaces https://api.telegram.org.
func (s *Server) Start(ctx context.Context) (baseURL string, err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.serving.Go(func() {
		_ = s.http.Serve(ln) // ErrServerClosed, after Close
	})
	return "http://" + ln.Addr().String(), nil
}

// Close ends all calls, including hanging ones, and stops listening.
func (s *Server) Close() {
	s.close.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.closing)
		s.setHook(nil)
	})
	_ = s.http.Close() // the listener may already be closed
	s.serving.Wait()
}

// Wait waits until cond returns true, and returns nil, or ctx's error if ctx is done first. It
// calls cond immediately and after each change of the server's state.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	return s.changed.Wait(ctx, cond)
}

// Calls returns how often a method was called, including failed calls.
func (s *Server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Commands returns the bot's menu.
func (s *Server) Commands() []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands
}

// A reply is the answer to a call: a result or a failure.
type reply struct {
	result any // a json.RawMessage is written unchanged

	code        int // HTTP status of a failure, or 0
	description string
	retryAfter  int
	migrateTo   int64
}

func refuse(code int, description string) reply {
	return reply{code: code, description: description}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, download := strings.CutPrefix(r.URL.Path, "/file")
	token, method, ok := strings.Cut(strings.TrimPrefix(path, "/bot"), "/")
	if !ok || !strings.HasPrefix(path, "/bot") || !strings.Contains(token, ":") {
		write(w, refuse(http.StatusNotFound, "Not Found"))
		return
	}
	if token != s.token {
		write(w, refuse(http.StatusUnauthorized, "Unauthorized"))
		return
	}
	c := call{method: method, at: time.Now()}
	if download {
		c = call{method: "file", params: url.Values{"path": {method}}, at: time.Now()}
	} else {
		s.cut(method)
		if refused := s.parse(w, r, &c); refused.code != 0 {
			write(w, refused)
			return
		}
	}
	s.mu.Lock()
	s.calls[c.method]++
	fault, failing := s.meet(c)
	s.changed.Notify()
	s.mu.Unlock()
	switch {
	case failing:
		s.fail(w, r, c, fault)
	case download:
		s.serveFile(w, c)
	default:
		if answer, ok := s.execute(r.Context(), c); ok {
			write(w, answer)
		}
	}
}

// A call is a request of the bot.
type call struct {
	method string
	params url.Values
	upload *File     // or nil
	at     time.Time // when it was fully read
}

// common are the parameters of all methods that send.
const common = "chat_id message_thread_id reply_parameters reply_markup "

// parameters lists the known parameters of each method.
var parameters = map[string]string{
	"getMe":               "",
	"getUpdates":          "offset limit timeout allowed_updates",
	"getFile":             "file_id",
	"sendMessage":         common + "text parse_mode link_preview_options",
	"sendPhoto":           common + "photo caption parse_mode",
	"sendVideo":           common + "video caption parse_mode duration supports_streaming",
	"sendAnimation":       common + "animation caption parse_mode duration",
	"sendVoice":           common + "voice caption parse_mode duration",
	"sendAudio":           common + "audio caption parse_mode duration",
	"sendDocument":        common + "document caption parse_mode",
	"sendRichMessage":     common + "rich_message",
	"sendMessageDraft":    "chat_id message_thread_id draft_id text parse_mode can_stop",
	"editMessageText":     "chat_id message_id text parse_mode link_preview_options rich_message",
	"deleteMessage":       "chat_id message_id",
	"leaveChat":           "chat_id",
	"sendChatAction":      "chat_id action message_thread_id",
	"setMessageReaction":  "chat_id message_id reaction is_big",
	"answerCallbackQuery": "callback_query_id text show_alert",
	"setMyCommands":       "commands",
	"setWebhook":          "url secret_token allowed_updates max_connections drop_pending_updates",
	"getWebhookInfo":      "",
	"deleteWebhook":       "drop_pending_updates",
}

// execute executes c. It returns false if the client has gone away.
func (s *Server) execute(ctx context.Context, c call) (reply, bool) {
	known, ok := parameters[c.method]
	if !ok || slices.Contains(s.opts.Missing, c.method) {
		return refuse(http.StatusNotFound, "Not Found: method not found"), true
	}
	for name := range c.params {
		if !strings.Contains(" "+known+" ", " "+name+" ") {
			return refuse(http.StatusBadRequest, "Bad Request: unknown parameter "+name), true
		}
	}
	switch c.method {
	case "getUpdates":
		return s.getUpdates(ctx, c)
	case "sendMessage", "sendRichMessage", "sendPhoto", "sendVideo", "sendAnimation", "sendVoice",
		"sendAudio", "sendDocument":
		return s.send(c), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Notify()
	return s.executeLocked(ctx, c), true
}

// executeLocked executes the methods that don't block. s.mu is held.
func (s *Server) executeLocked(ctx context.Context, c call) reply {
	switch c.method {
	case "editMessageText":
		return s.editMessageText(c)
	case "deleteMessage":
		return s.deleteMessage(c)
	case "leaveChat":
		return s.leaveChat(c)
	case "sendMessageDraft":
		return s.sendMessageDraft(c)
	case "sendChatAction":
		return s.sendChatAction(c)
	case "setMessageReaction":
		return s.setMessageReaction(c)
	case "answerCallbackQuery":
		return s.answerCallbackQuery(c)
	case "getFile":
		return s.getFile(c)
	case "setMyCommands":
		return s.setMyCommands(c)
	case "setWebhook":
		return s.setWebhook(ctx, c)
	case "getWebhookInfo":
		return reply{result: s.webhookInfo()}
	case "deleteWebhook":
		s.setHook(nil)
		if c.params.Get("drop_pending_updates") == "true" {
			s.queue = nil
		}
		return reply{result: true}
	}
	return reply{result: s.bot} // getMe
}

// setMyCommands checks the documented limits of the menu and sets it. s.mu is held.
func (s *Server) setMyCommands(c call) reply {
	var menu []Command
	if err := json.Unmarshal([]byte(c.params.Get("commands")), &menu); err != nil {
		return refuse(http.StatusBadRequest, "Bad Request: can't parse commands JSON object")
	}
	if len(menu) > 100 {
		return refuse(http.StatusBadRequest, "Bad Request: BOT_COMMANDS_TOO_MUCH")
	}
	for _, e := range menu {
		switch {
		case e.Command == "" || len(e.Command) > 32 || strings.Trim(e.Command,
			"abcdefghijklmnopqrstuvwxyz0123456789_") != "":
			return refuse(http.StatusBadRequest, "Bad Request: BOT_COMMAND_INVALID")
		case e.Description == "" || utf16Len(e.Description) > 256:
			return refuse(http.StatusBadRequest, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	s.commands = menu
	return reply{result: true}
}

// write writes an answer as the Bot API does: JSON, with a failure's code in the body and as the
// status.
func write(w http.ResponseWriter, a reply) {
	var body []byte
	if a.code == 0 {
		result, err := json.Marshal(a.result)
		if err != nil {
			panic(err) // the result is always one of ours
		}
		body = append(append([]byte(`{"ok":true,"result":`), result...), '}')
	} else {
		failure := map[string]any{
			"ok": false, "error_code": a.code, "description": a.description,
		}
		switch {
		case a.retryAfter > 0:
			failure["parameters"] = map[string]any{"retry_after": a.retryAfter}
		case a.migrateTo != 0:
			failure["parameters"] = map[string]any{"migrate_to_chat_id": a.migrateTo}
		}
		body, _ = json.Marshal(failure) // strings and numbers can always be encoded
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if a.code != 0 {
		w.WriteHeader(a.code)
	}
	_, _ = w.Write(body) // the client may be gone
}
