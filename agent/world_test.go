package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/extract"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/memory/version"
	"gateway/session"
	"gateway/store"
)

// A world is a dispatcher with a real store, a real bus and a scripted model. The test plays the
// channels: it puts messages into the inbox and reads the outbox.
type world struct {
	t       testing.TB
	path    string // of the database
	deps    Deps
	opts    Options // take effect at start
	outside hostSettings
	model   *llmtest.Model

	d      *Dispatcher // the one started last
	cancel context.CancelFunc
	ended  chan error
	sent   int // messages so far
}

// inWorld runs test with its own world in a synctest bubble. The bubble's clock stands still
// while a goroutine can run, and then jumps to the next timer.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newWorld(t)) })
}

func newWorld(t testing.TB) *world { return newWorldOf(t, emptyDatabase()) }

// newWorldOf returns a world whose database has this content.
func newWorldOf(t testing.TB, database []byte) *world {
	dir := t.TempDir()
	w := &world{t: t, path: filepath.Join(dir, "gateway.db"), model: llmtest.New("scripted")}
	w.must(os.WriteFile(w.path, database, 0o600))
	db, err := store.Open(t.Context(), w.path, allMigrations(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.must(db.Close()) })
	root, err := os.OpenRoot(dir)
	w.must(err)
	t.Cleanup(func() { w.must(root.Close()) })
	w.deps = Deps{DB: db, Inbox: bus.NewInbox(), Outbox: bus.NewOutbox(), Live: bus.NewLive(),
		Model: checked{w.model, t}, Notes: &notesModel{t: t}, Media: &mediaFolder{dir: dir}}
	w.deps.People, w.deps.Accounts, w.deps.Toolset = people{w}, accounts{w}, toolset{w}
	w.deps.Extract, err = extract.New(extract.Options{})
	w.must(err)
	w.scopes(dir, root)
	w.tools()
	t.Cleanup(func() {
		if w.cancel != nil {
			w.must(w.stop())
		}
	})
	return w
}

// scopes gives the dispatchers a memory, with documents in the folder of the world.
func (w *world) scopes(dir string, root *os.Root) {
	w.opts.MemoryPath = filepath.Join(dir, "memory")
	w.must(os.Mkdir(w.opts.MemoryPath, 0o700))
	scopes, err := os.OpenRoot(w.opts.MemoryPath)
	w.must(err)
	w.t.Cleanup(func() { w.must(scopes.Close()) })
	now := func() time.Time { return w.now() }
	w.deps.Memory = memory.New(w.deps.DB, scopes, &memory.Options{Now: now})
	w.deps.Documents = document.New(root, scopes, &document.Options{Now: now})
	w.deps.Versions = version.New(w.deps.DB, &version.Options{Now: now})
}

// now returns the time as the dispatchers see it.
func (w *world) now() time.Time {
	if w.opts.Now != nil {
		return w.opts.Now()
	}
	return time.Now()
}

func allMigrations() []store.Migration {
	return append(Migrations(), bus.Migration, session.Migration, memory.Migration, version.Migration)
}

// emptyDatabase returns a database with all tables. It is built once, because creating the tables
// takes longer than most tests, above all with the race detector.
var emptyDatabase = sync.OnceValue(func() []byte {
	return databaseOf(allMigrations(), func(*store.Tx) error { return nil })
})

// databaseOf returns the content of a database that has the tables of migrations and the rows
// that fill writes.
func databaseOf(migrations []store.Migration, fill func(tx *store.Tx) error) []byte {
	dir, err := os.MkdirTemp("", "gateway-agent-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gateway.db")
	db, err := store.Open(context.Background(), path, migrations, nil)
	if err == nil {
		err = errors.Join(db.Tx(context.Background(), fill), db.Close())
	}
	if err != nil {
		panic(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return content
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// tools replaces the tools of the dispatchers that are started from now on.
func (w *world) tools(tools ...tool.Tool) {
	w.t.Helper()
	registry, err := tool.NewRegistry(tools...)
	w.must(err)
	w.deps.Tools = registry
}

// start runs a dispatcher, as a new process does, until stop or the end of the test.
func (w *world) start() {
	w.live()
	d := NewDispatcher(w.deps, &w.opts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	w.d, w.cancel, w.ended = d, cancel, ended
	w.settle()
}

// live begins the life of a new process.
func (w *world) live() {
	w.t.Helper()
	life, err := store.BeginLife(context.Background(), w.deps.DB, w.now(), 1)
	w.must(err)
	w.deps.Life = life
}

// stop ends the dispatcher and the life of its process. It returns the first error of these.
func (w *world) stop() error {
	w.cancel()
	w.cancel = nil
	err := <-w.ended
	if err == nil {
		err = w.deps.Life.End(context.Background(), w.now())
	}
	return err
}

// expireLeases ends all leases, as opening the store does after a dispatcher has failed.
func (w *world) expireLeases() { w.exec("UPDATE leases SET until_ms = 0") }

// settle waits until all goroutines of the bubble are blocked.
func (w *world) settle() { synctest.Wait() }

// sleep lets d pass and then waits until everything that is due has happened.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	w.settle()
}

// tx runs fn in a transaction of its own.
func (w *world) tx(fn func(tx *store.Tx) error) {
	w.t.Helper()
	w.must(w.deps.DB.Tx(context.Background(), fn))
}

func (w *world) read() store.Queryer { return w.deps.DB.Read(context.Background()) }

// exec changes the database without the knowledge of the dispatcher.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
}

// count returns the single number that a query yields.
func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	w.must(w.read().QueryRow(query, args...).Scan(&n))
	return n
}

// Queries for column.
const (
	turnStates = "SELECT id || ' ' || state || ' ' || epoch || ' ' || attempts " +
		"FROM turns ORDER BY id"
	transcriptBodies = "SELECT turn || ' ' || body FROM messages ORDER BY id"
	inboxStates      = "SELECT id || ' ' || state FROM inbox ORDER BY id"
)

// column returns the strings that a query yields.
func (w *world) column(query string) (list []string) {
	w.t.Helper()
	rows, err := w.read().Query(query)
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		var s string
		w.must(rows.Scan(&s))
		list = append(list, s)
	}
	w.must(rows.Err())
	return list
}

// messageTime is when all messages in tests were sent. stamp is how their envelope shows it.
var messageTime = time.Date(2026, time.February, 16, 12, 51, 7, 0, time.UTC)

const stamp = "[Monday 2026-02-16 12:51 +00:00] "

func at(chat string) bus.Address { return bus.Address{Account: "test", Chat: chat} }

// message returns a message of a person to the bot in a direct chat.
func (w *world) message(chat, text string) bus.InboundMessage {
	w.sent++
	return bus.InboundMessage{
		ID: strconv.Itoa(w.sent), From: at(chat), Text: text, Time: messageTime,
		Sender: bus.Sender{ID: "7", Name: "Ada"}, Role: "owner", Addressed: true,
	}
}

// put accepts messages as a channel does, and then settles.
func (w *world) put(messages ...bus.InboundMessage) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error {
		for _, m := range messages {
			if _, err := w.deps.Inbox.Put(tx, m, time.Now()); err != nil {
				return err
			}
		}
		return nil
	})
	w.deps.Inbox.Wake()
	w.settle()
}

// say puts texts of one person into a chat.
func (w *world) say(chat string, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		w.put(w.message(chat, text))
	}
}

// outbox returns the messages to a chat that wait in the outbox, in their order. No channel sends
// them during a test.
func (w *world) outbox(chat string) (list []bus.OutboundMessage) {
	w.t.Helper()
	for last := int64(0); ; {
		rows, err := w.deps.Outbox.Open(w.read(), last)
		w.must(err)
		if len(rows) == 0 {
			return list
		}
		for _, row := range rows {
			last = row.ID
			if row.Message.To == at(chat) {
				list = append(list, row.Message)
			}
		}
	}
}

// wantAnswers checks that a chat got exactly these answers.
func (w *world) wantAnswers(chat string, want ...string) {
	w.t.Helper()
	var got []string
	for _, m := range w.outbox(chat) {
		got = append(got, m.Text)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("chat %s was told %q, want %q", chat, got, want)
	}
}

// wantQuiet waits a minute. Then it checks that no message is open, that no turn and no model
// call runs, and that no step of the model is left.
func (w *world) wantQuiet() {
	w.t.Helper()
	w.sleep(time.Minute)
	if n := w.count("SELECT count(*) FROM inbox WHERE state IN ('waiting', 'taken')"); n != 0 {
		w.t.Errorf("%d messages in the inbox are open, want none", n)
	}
	if n := w.count("SELECT count(*) FROM turns WHERE state = 'running'"); n != 0 {
		w.t.Errorf("%d turns are running, want none", n)
	}
	if n := w.model.Running(); n != 0 {
		w.t.Errorf("%d model calls are under way, want none", n)
	}
	if n := w.model.Left(); n != 0 {
		w.t.Errorf("%d steps of the model are left, want none", n)
	}
}

// request returns the n-th request to the model, counted from 1.
func (w *world) request(n int) llm.Request {
	w.t.Helper()
	requests := w.model.Requests()
	if len(requests) < n {
		w.t.Fatalf("the model was asked %d times, want %d at least", len(requests), n)
	}
	return requests[n-1]
}

// wantAsked checks the messages of the n-th request to the model, without the system prompt.
func (w *world) wantAsked(n int, want ...string) {
	w.t.Helper()
	r := w.request(n)
	if r.Messages[0].Role != llm.System {
		w.t.Errorf("request %d begins with %s, want the system prompt", n, r.Messages[0].Role)
	}
	wantLines(w.t, fmt.Sprintf("request %d", n), lines(r.Messages[1:]), want)
}

// wantTranscript checks the complete stored transcript of a chat's conversation.
func (w *world) wantTranscript(chat string, want ...string) {
	w.t.Helper()
	rows, err := w.read().Query("SELECT body FROM messages WHERE session = $1 ORDER BY id",
		session.KeyOf(at(chat)).String())
	w.must(err)
	defer rows.Close()
	var list []llm.Message
	for rows.Next() {
		var body []byte
		var m llm.Message
		w.must(rows.Scan(&body))
		w.must(json.Unmarshal(body, &m))
		list = append(list, m)
	}
	w.must(rows.Err())
	wantLines(w.t, "transcript of "+chat, lines(list), want)
}

func wantLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s is\n\t%s\nwant\n\t%s", what,
			strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// lines returns messages in a form to compare: "user: text", "assistant: text look({})",
// "tool: result". The envelope's time is left out.
func lines(messages []llm.Message) (list []string) {
	for _, m := range messages {
		line := string(m.Role) + ": " + strings.ReplaceAll(m.Text, stamp, "")
		for _, c := range m.ToolCalls {
			line += " " + c.Name + "(" + c.Arguments + ")"
		}
		list = append(list, line)
	}
	return list
}

// info returns the stored information about a chat's session.
func (w *world) info(chat string) session.Info {
	w.t.Helper()
	info, err := session.ReadInfo(w.read(), session.KeyOf(at(chat)))
	w.must(err)
	return info
}

// act returns a tool without arguments that calls run.
func act(name string, effect tool.Effect, run func(ctx context.Context) (string, error)) tool.Tool {
	return tool.Tool{
		Name: name, Description: "Does " + name + ".", Effect: effect,
		Schema: json.RawMessage(`{"type":"object","properties":{}}`),
		Run: func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			text, err := run(ctx)
			return tool.Result{Text: text}, err
		},
	}
}

// always returns a function for [act] that returns result at once.
func always(result string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return result, nil }
}

// until returns a function for [act] that returns result once done is closed, or the error of its
// context if the context ends first.
func until(done <-chan struct{}, result string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		select {
		case <-done:
			return result, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// uses returns a step of the model that calls tools without arguments.
func uses(tools ...string) llmtest.Step {
	var s llmtest.Step
	for _, name := range tools {
		s.Calls = append(s.Calls, llm.ToolCall{Name: name, Arguments: "{}"})
	}
	return s
}

// held returns s as a step that waits until release is closed.
func held(s llmtest.Step, release <-chan struct{}) llmtest.Step {
	s.Block = release
	return s
}
