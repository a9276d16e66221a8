package turn

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/modelcall"
	"gateway/agent/observe"
	"gateway/agent/policy"
	"gateway/agent/prompt"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/store"
	"gateway/store/plaintext"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// A world is an environment for turns with a real database. The tests of package agent test turns
// as a whole.
type world struct {
	t        testing.TB
	dir      string
	env      *Env
	settings Settings
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir()}
	w.settings = Settings{Timeout: time.Minute, MaxRounds: 40, MaxTaskRounds: 15,
		ContextWindow: 65_536}
	db, err := store.Open(t.Context(), filepath.Join(w.dir, "gateway.db"), []store.Migration{
		bus.Migration, session.Migration, memory.Migration, budget.Migration, background.Migration,
		question.Migration, policy.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.must(db.Close()) })
	root := w.open(w.dir)
	scopes := filepath.Join(w.dir, "memory")
	w.must(os.Mkdir(scopes, 0o700))
	folder := w.open(scopes)
	facts := memory.New(db, folder, &memory.Options{Now: time.Now})
	docs := document.New(root, folder, &document.Options{Now: time.Now})
	log, outbox, estimates := slog.New(slog.DiscardHandler), bus.NewOutbox(), new(prompt.Estimator)
	calls := &modelcall.Calls{DB: db, Outbox: outbox, Observer: observe.Noop{},
		Ledger: budget.New(&budget.Options{Location: time.UTC, Now: time.Now}), Estimates: estimates,
		Slots: make(chan struct{}, 1), Now: time.Now}
	w.env = &Env{
		Profile: Profile{Name: "gateway", Location: time.UTC},
		DB:      db, Inbox: bus.NewInbox(), Outbox: outbox, Live: bus.NewLive(),
		Attachments: &attachment.Loader{Calls: calls, Logger: log}, Calls: calls,
		Knowledge:   Knowledge{Memory: facts, Documents: docs},
		Transcripts: new(Transcripts), Prompts: new(prompt.Cache), Counters: new(Counters),
		Now:    time.Now,
		Logger: log,
		Summarizer: &background.Summarizer{DB: db, Memory: facts, Model: notesModel{},
			Estimates: estimates,
			Settings:  limits{w}, Dreams: true, Zone: time.UTC, Now: time.Now, Logger: log},
	}
	w.tools()
	return w
}

func (w *world) open(dir string) *os.Root {
	root, err := os.OpenRoot(dir)
	w.must(err)
	w.t.Cleanup(func() { w.must(root.Close()) })
	return root
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// tools replaces the tools of turns.
func (w *world) tools(tools ...tool.Tool) {
	w.t.Helper()
	registry, err := tool.NewRegistry(tools...)
	w.must(err)
	w.env.Tools = registry
}

// turn returns a turn of an owner that has not begun.
func (w *world) turn(key session.Key) *runner {
	t := assemble(&turn{env: w.env, mailbox: emptyMailbox{}, settings: &w.settings,
		role: bus.Owner, tools: w.env.Tools})
	t.Session, t.Address = key, at("a")
	return t
}

// emptyMailbox is a Mailbox that never gets a message.
type emptyMailbox struct{}

func (emptyMailbox) Next() []bus.Received           { return nil }
func (emptyMailbox) Claimed(context.Context, error) {}
func (emptyMailbox) HasNews() bool                  { return false }

// limits is the configuration of background tasks in a world.
type limits struct{ w *world }

func (l limits) Background() background.Config {
	return background.Config{Tokens: l.w.settings.ContextBudget()}
}

func (l limits) Prompt(session.Key) (string, int) {
	return "", l.w.settings.ContextBudget()
}

// A notesModel is a model for notes. It repeats the beginning of what people said.
type notesModel struct{}

func (notesModel) Ask(_ context.Context, _ budget.Spender, r llm.Request) (*llm.Response, error) {
	notes := ""
	for line := range strings.Lines(r.Messages[1].Text) {
		var said struct{ Day, Who, Text string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			return nil, errors.New("asked for notes of " + line)
		}
		if said.Who == "user" {
			notes += "- " + said.Day + ": " + plaintext.Cut(said.Text, 200) + "\n"
		}
	}
	return &llm.Response{Model: "clerk", Finish: llm.FinishStop,
		Message: llm.Message{Role: llm.Assistant, Text: notes}}, nil
}

// tx runs fn in a transaction.
func (w *world) tx(fn func(tx *store.Tx) error) {
	w.t.Helper()
	w.must(w.env.DB.Tx(context.Background(), fn))
}

func (w *world) read() store.Queryer { return w.env.DB.Read(context.Background()) }

// count returns the single number that a query returns.
func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	w.must(w.read().QueryRow(query, args...).Scan(&n))
	return n
}

// document writes a file into the workspace.
func (w *world) document(name, text string) {
	w.t.Helper()
	w.must(os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

func (w *world) remembers(s memory.Scope, f memory.Fact) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error { return w.env.Memory.In(s).Set(tx, f) })
}

// stamp is the beginning of messages in these tests.
const stamp = "[Monday 2026-02-16 12:51 +00:00] "

func at(chat string) bus.Address { return bus.Address{Account: "test", Chat: chat} }

func wantLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s is\n\t%s\nwant\n\t%s", what,
			strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// lines returns messages as text that is easy to compare.
func lines(messages []llm.Message) (list []string) {
	for _, m := range messages {
		list = append(list, string(m.Role)+": "+m.Text)
	}
	return list
}

// act returns a tool without arguments that always has the same result.
func act(name string, effect tool.Effect, result string) tool.Tool {
	return tool.Tool{
		Name: name, Description: "Does " + name + ".", Effect: effect,
		Schema: json.RawMessage(`{"type":"object","properties":{}}`),
		Run: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Text: result}, nil
		},
	}
}

// intent returns a message of the model that calls a tool.
func intent(name string) llm.Message {
	return llm.Message{Role: llm.Assistant,
		ToolCalls: []llm.ToolCall{{Name: name, Arguments: "{}"}}}
}
