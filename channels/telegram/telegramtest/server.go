// Package telegramtest is a Telegram Bot API server that keeps its state in memory.
//
// A [Server] answers the methods that the gateway uses, and is as strict about them as
// api.telegram.org: token, parameters, HTML, lengths, files, keyboards, chats, topics, offsets
// and the single long poll. People write with [Server.Say] and its kin, and press buttons with
// [Server.Press]; what the bot wrote is in [Server.History], and [Server.Wait] waits for it.
// [Server.Inject] makes calls fail. A webhook that the bot sets is called.
//
// It knows one bot, keeps message ids per chat (as Telegram does in supergroups) and accepts
// parameters as a form only. It is stricter than Telegram in one thing: a parameter that it
// does not know is an error, so a misspelt one shows. Of rich messages it checks no Markdown.
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
	// Bot is the bot's own account; default "Gateway", @gateway_bot.
	Bot User

	// Keep is how many messages of each chat are remembered; default all. A
	// bot can't edit and nobody can quote a message that is forgotten.
	Keep int

	// OnSend is called with each message that was accepted, before the bot gets its answer. It
	// may be called concurrently and must be quick.
	OnSend func(Sent)

	// Missing are methods that the server does not know, as an old one does not.
	Missing []string

	// LocalFiles is the folder of a server that runs with --local: it keeps files there and
	// names them by their path. They may be as large as they like.
	LocalFiles string
}

// A Server is a Bot API server for one bot. Its methods may be called concurrently.
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
	queue      []queued // updates that are not confirmed, oldest first
	lastUpdate int64
	restarted  bool // update ids started again and none of the new ones was served
	poll       *poll
	hook       *hook           // nil if no webhook is set
	allowed    map[string]bool // kinds of updates; nil means all
	presses    map[string]bool // ids of callback queries, and whether they were answered
	pressOrder []string
	files      map[string]*stored // by id
	commands   []Command
	faults     faults.Queue[Fault, int64]
	hanging    map[int64]int // calls that hang now, by chat
	calls      map[string]int
	changed    notifier.Notifier // rung at each change
}

// A Command is an entry of the bot's menu, as setMyCommands set it.
type Command struct {
	Command     string `json:"command"`
	Description string `json:"description"`
}

// New returns a Server for the bot with the given token. A nil opts means the defaults.
func New(token string, opts *Options) *Server {
	o := Options{}
	if opts != nil {
		o = *opts
	}
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
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
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

// Connections returns how many connections are open. None is once all calls of clients that have
// ended are served.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// Start listens on a free loopback port and serves until Close. It returns the base URL,
// which is what an adapter takes instead of https://api.telegram.org.
func (s *Server) Start(ctx context.Context) (baseURL string, err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.serving.Go(func() {
		_ = s.http.Serve(ln) // it ends with ErrServerClosed, at Close
	})
	return "http://" + ln.Addr().String(), nil
}

// Close ends every call under way, hanging ones too, and stops listening.
func (s *Server) Close() {
	s.close.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.closing)
		s.setHook(nil)
	})
	_ = s.http.Close() // nothing to do about a listener that is gone already
	s.serving.Wait()
}

// Wait returns nil once cond reports true and ctx's error if that ends first. It calls cond
// at once and after every change of the server's state.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	return s.changed.Wait(ctx, cond)
}

// Calls returns how often a method was called, failures included.
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
	result any // a json.RawMessage is written as it is

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

// A call is one request of the bot.
type call struct {
	method string
	params url.Values
	upload *File     // or nil
	at     time.Time // when it had been read
}

// common are the parameters of all methods that send.
const common = "chat_id message_thread_id reply_parameters reply_markup "

// parameters lists, for each method, the parameters that the server understands.
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
	"sendMessageDraft":    "chat_id message_thread_id draft_id text parse_mode",
	"editMessageText":     "chat_id message_id text parse_mode link_preview_options rich_message",
	"deleteMessage":       "chat_id message_id",
	"sendChatAction":      "chat_id action message_thread_id",
	"setMessageReaction":  "chat_id message_id reaction is_big",
	"answerCallbackQuery": "callback_query_id text show_alert",
	"setMyCommands":       "commands",
	"setWebhook":          "url secret_token allowed_updates max_connections drop_pending_updates",
	"getWebhookInfo":      "",
	"deleteWebhook":       "drop_pending_updates",
}

// execute carries out c. It reports false if the client went away meanwhile.
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

// executeLocked carries out the methods that need no time. The caller holds s.mu.
func (s *Server) executeLocked(ctx context.Context, c call) reply {
	switch c.method {
	case "editMessageText":
		return s.editMessageText(c)
	case "deleteMessage":
		return s.deleteMessage(c)
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

// setMyCommands holds the menu to the documented bounds. The caller holds s.mu.
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

// write sends a as the Bot API does: JSON, and a failure's code both inside and as status.
func write(w http.ResponseWriter, a reply) {
	var body []byte
	if a.code == 0 {
		result, err := json.Marshal(a.result)
		if err != nil {
			panic(err) // a result is always of our own making
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
		body, _ = json.Marshal(failure) // strings and numbers always marshal
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if a.code != 0 {
		w.WriteHeader(a.code)
	}
	_, _ = w.Write(body) // a client that has gone needs no answer
}
