package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/bus"
	"gateway/channels/telegram/telegramtest"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
	"gateway/store/storetest"
)

// patience is how long a test waits for an expected event.
const patience = 3 * time.Minute

// A world contains a gateway's home with a configuration, and the two servers that the gateway
// connects to: fakes of Telegram and of the model's provider. Both have their own state.
type world struct {
	t        testing.TB
	home     string
	config   string // lines that all configurations share
	telegram *telegramtest.Server
	url      string // URL of telegram
	model    *openaitest.Server
	stop     func() // ends the gateway that run has started last
}

const testToken = "123456:TEST-TOKEN"

// worldOptions are the optional settings of a [world].
type worldOptions struct {
	token   string                  // token of the bot; default testToken
	answer  openaitest.Answer       // the model's answers; default openaitest.Echo
	onSend  func(telegramtest.Sent) // as in telegramtest.Options
	agent   string                  // more lines of [agent]
	channel string                  // lines of [channels.telegram]; default quiet
	sandbox string                  // for commands; default "off"
}

// quiet configures a Telegram account that is open to everybody, without rate limit and
// streaming.
const quiet = "access = \"open\"\nrate_limit = \"off\"\nstreaming = false\n" +
	"reaction = \"\"\nsender_rate = 0"

// streaming configures such an account with frequent previews.
const streaming = "access = \"open\"\nrate_limit = \"off\"\nedit_interval = \"20ms\"\n" +
	"sender_rate = 0"

func newWorld(t testing.TB, o worldOptions) *world {
	t.Helper()
	w := &world{
		t: t, home: newHome(t, o),
		telegram: telegramtest.New(cmp.Or(o.token, testToken),
			&telegramtest.Options{OnSend: o.onSend}),
		model: openaitest.Start(o.answer),
	}
	t.Cleanup(w.model.Close)
	t.Cleanup(w.telegram.Close)
	w.model.Keep(0)
	var err error
	if w.url, err = w.telegram.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.config = fmt.Sprintf(`[log]
format = "json"
[exec]
sandbox = %q
[agent]
model = "fake"
%s
[models.fake]
model = "fake-model"
base_url = %q
[channels.telegram]
token = %q
api_url = %q
`, cmp.Or(o.sandbox, "off"), o.agent, w.model.URL, testToken, w.url)
	w.configure(cmp.Or(o.channel, quiet))
	return w
}

// newHome returns a new folder. It is in memory, except in the long variants and if commands of a
// sandbox need it.
func newHome(t testing.TB, o worldOptions) string {
	if *long || o.sandbox != "" {
		return t.TempDir()
	}
	return storetest.Dir(t)
}

// configure writes the configuration file with the given lines for the Telegram account.
func (w *world) configure(channel string) {
	w.t.Helper()
	file := filepath.Join(w.home, "config.toml")
	if err := os.WriteFile(file, []byte(w.config+channel+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// environ returns the environment of a gateway in w. Only PATH and GOMAXPROCS come from this
// machine.
func (w *world) environ() []string {
	return append(thrifty(),
		"GATEWAY_HOME="+w.home, "HOME="+w.home, "PATH="+os.Getenv("PATH"),
		"GATEWAY_HTTP__LISTEN=") // else all gateways would use the same port
}

// run runs a gateway in this process until the test ends or stop is called. Both wait until the
// gateway has ended.
func (w *world) run() (stop func()) {
	w.t.Helper()
	cfg, err := config.Load("", w.environ())
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	g, err := app.Open(w.t.Context(), cfg, log)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-ended, g.Close()); err != nil {
			w.t.Errorf("gateway ended: %v", err)
		}
	}
	w.t.Cleanup(stop)
	w.stop = stop
	return stop
}

// look opens the database, which a gateway may use at the same time, calls fn, and closes it.
func (w *world) look(fn func(db *store.DB)) {
	w.t.Helper()
	path := filepath.Join(w.home, "gateway.db")
	db, err := store.Open(w.t.Context(), path, app.Migrations(), &store.Options{Shared: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	fn(db)
}

// query runs a query and yields once per row, after it has scanned the columns into the pointers.
func (w *world) query(db *store.DB, into []any, query string, args ...any) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		rows, err := db.Read(w.t.Context()).Query(query, args...)
		if err != nil {
			w.t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				w.t.Fatal(err)
			}
			if !yield(struct{}{}) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// count returns the number of rows. The argument rows is a table, with or without a condition.
func (w *world) count(db *store.DB, rows string) (n int) {
	for range w.query(db, []any{&n}, "SELECT count(*) FROM "+rows) {
	}
	return n
}

// outbound decodes a message of the outbox.
func outbound(t testing.TB, body []byte) (m bus.OutboundMessage) {
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// await waits until cond is true. It checks cond after each event at Telegram.
func (w *world) await(what string, cond func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.telegram.Wait(ctx, cond); err != nil {
		w.t.Fatalf("waited for %s: %v", what, err)
	}
}

// texts returns the current texts of the bot's messages in a chat.
func (w *world) texts(chat int64) []string {
	var list []string
	for _, m := range w.telegram.History(chat) {
		if !m.Deleted {
			list = append(list, m.Text)
		}
	}
	return list
}

// reply makes a person write in their chat and returns the answer.
func (w *world) reply(chat int64, text string) string {
	w.t.Helper()
	before := len(w.texts(chat))
	w.telegram.Say(chat, chat, text)
	w.await("an answer to "+text, func() bool { return len(w.texts(chat)) > before })
	return w.texts(chat)[before]
}

// wantReply checks that the answer to a person contains want.
func (w *world) wantReply(chat int64, text, want string) {
	w.t.Helper()
	if got := w.reply(chat, text); !strings.Contains(got, want) {
		w.t.Errorf("chat %d was told %q after %q, want %q in it", chat, got, text, want)
	}
}

// until waits until a channel is closed or receives a value.
func until[T any](t testing.TB, what string, c <-chan T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("waited for %s", what)
	}
}

// eventually checks cond on the gateway's database repeatedly until it is true.
func (w *world) eventually(what string, cond func(db *store.DB) bool) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	w.look(func(db *store.DB) {
		for deadline := time.Now().Add(patience); !cond(db); <-tick.C {
			if time.Now().After(deadline) {
				w.t.Fatalf("waited for %s", what)
			}
		}
	})
}
