package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/gate"
	"gateway/channels/media"
	"gateway/channels/router"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var discard = slog.New(slog.DiscardHandler)

var migrations = []store.Migration{bus.Migration, gate.Migration}

func openStore(t *testing.T, dir string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(dir, "g.db"), migrations, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// A call is a call that a platform got.
type call struct {
	kind string // send, edit, remove or type
	id   string // key of the message to send, or the platform's id
	to   bus.Address
	text string
	at   time.Duration // since the world began
}

// A platform is a Full that records its calls and fails as a test decides.
type platform struct {
	channeltest.Full
	began time.Time
	fail  func(ctx context.Context, c call) error // set before the router runs

	mu    sync.Mutex
	calls []call
}

func (p *platform) enter(ctx context.Context, c call) error {
	c.at = time.Since(p.began)
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	if p.fail != nil {
		return p.fail(ctx, c)
	}
	return nil
}

func (p *platform) Send(ctx context.Context, part bus.Part) (string, error) {
	if err := p.enter(ctx, call{"send", part.Key, part.To, part.Text, 0}); err != nil {
		return "", err
	}
	return p.Full.Send(ctx, part)
}

func (p *platform) Edit(ctx context.Context, to bus.Address, id, text string) error {
	if err := p.enter(ctx, call{"edit", id, to, text, 0}); err != nil {
		return err
	}
	return p.Full.Edit(ctx, to, id, text)
}

func (p *platform) Remove(ctx context.Context, to bus.Address, id string) error {
	if err := p.enter(ctx, call{"remove", id, to, "", 0}); err != nil {
		return err
	}
	return p.Full.Remove(ctx, to, id)
}

func (p *platform) Type(ctx context.Context, to bus.Address) error {
	if err := p.enter(ctx, call{"type", "", to, "", 0}); err != nil {
		return err
	}
	return p.Full.Type(ctx, to)
}

// asked returns the calls of some kinds, oldest first.
func (p *platform) asked(kinds ...string) (list []call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if slices.Contains(kinds, c.kind) {
			list = append(list, c)
		}
	}
	return list
}

// read returns what people read in a conversation now.
func (p *platform) read(to bus.Address) (texts []string) {
	for _, s := range p.Sent() {
		if s.Part.To == to && !s.Deleted {
			texts = append(texts, s.Part.Text)
		}
	}
	return texts
}

// small makes parts of at most ten characters.
var small = channels.Limits{Text: 10, Measure: utf8.RuneCountInString, EditInterval: time.Second}

var chatA = bus.Address{Account: "full", Chat: "a"}

func thread(chat, thread string) bus.Address {
	return bus.Address{Account: "full", Chat: chat, Thread: thread}
}

// A world is a store with an outbox, and a platform. Each call of start makes a new router.
type world struct {
	*platform
	t       *testing.T
	dir     string
	db      *store.DB
	outbox  *bus.Outbox
	live    *bus.Live
	media   *media.Store // nil except for tests of files
	router  *router.Router
	groups  router.Groups // or nil
	moves   router.Moves  // or nil
	sentLog *bus.SentLog  // or nil
	orderly bool          // the last process ended in order
	poll    time.Duration // see [router.Options]; long in tests that take days
	secrets router.Secrets
}

// inWorld runs test in a synctest bubble, where time is fake and all goroutines must end.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p := &platform{began: time.Now()}
		test(&world{platform: p, t: t, dir: dir, db: openStore(t, dir),
			outbox: bus.NewOutbox(), live: bus.NewLive()})
	})
}

// start runs a new router for the platform until the test ends, or until stop is called.
func (w *world) start(change ...func(*router.Account)) (stop func()) {
	w.t.Helper()
	a := router.Account{Name: "full", Channel: w.platform, Streaming: true}
	for _, c := range change {
		c(&a)
	}
	return w.startWith(a)
}

func (w *world) startWith(accounts ...router.Account) (stop func()) {
	w.t.Helper()
	w.router = router.New(router.Options{
		DB: w.db, Outbox: w.outbox, Live: w.live, Files: w.media, Owners: gate.People{},
		Groups: w.groups, Moves: w.moves, SentLog: w.sentLog, Accounts: accounts,
		Orderly: w.orderly, Poll: w.poll, Logger: discard,
	})
	w.router.SetSecrets(w.secrets)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.router.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run = %v", err)
		}
	})
	w.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// put puts a message into the outbox and waits until the router is idle.
func (w *world) put(to bus.Address, text string) (id int64) {
	w.t.Helper()
	return w.answer(to, text, "")
}

// answer puts into the outbox the message that ends the preview called stream. It waits until
// the router is idle.
func (w *world) answer(to bus.Address, text, stream string) (id int64) {
	w.t.Helper()
	id = w.store(bus.OutboundMessage{To: to, Text: text, Stream: stream})
	synctest.Wait()
	return id
}

// store puts messages into the outbox, and returns the last one's id.
func (w *world) store(messages ...bus.OutboundMessage) (id int64) {
	w.t.Helper()
	return w.storeBy(w.outbox, messages...)
}

// storeBy is like store, but for any outbox. The outbox of another process can't wake the
// router.
func (w *world) storeBy(outbox *bus.Outbox, messages ...bus.OutboundMessage) (id int64) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
		for _, m := range messages {
			if err := outbox.Put(tx, m, time.Now()); err != nil {
				return err
			}
		}
		return tx.QueryRow("SELECT max(id) FROM outbox").Scan(&id)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// sleep waits for d, and then until the router is idle.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// exec runs a statement.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// rows returns how many rows a table has.
func (w *world) rows(table string) (n int) {
	w.t.Helper()
	err := w.db.Read(w.t.Context()).QueryRow("SELECT count(*) FROM " + table).Scan(&n)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// show publishes the progress of an answer and waits until the router is idle.
func (w *world) show(to bus.Address, stream, text string) {
	w.progress(bus.Progress{To: to, Stream: stream, Text: text})
}

func (w *world) progress(p bus.Progress) {
	w.live.Publish(p)
	synctest.Wait()
}

// delivery returns a row of the outbox.
func (w *world) delivery(id int64) bus.Delivery {
	w.t.Helper()
	for _, state := range []bus.DeliveryState{
		bus.Waiting, bus.Sending, bus.Sent, bus.Dead, bus.Dropped,
	} {
		list, err := w.outbox.List(w.db.Read(w.t.Context()), state, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, d := range list {
			if d.ID == id {
				return d
			}
		}
	}
	w.t.Fatalf("there is no message %d in the outbox", id)
	return bus.Delivery{}
}

func (w *world) wantState(id int64, want bus.DeliveryState) {
	w.t.Helper()
	if d := w.delivery(id); d.State != want {
		w.t.Errorf("message %d is %s (%s), want %s", id, d.State, d.Error, want)
	}
}

// wantRead checks what people read in a conversation.
func (w *world) wantRead(to bus.Address, want ...string) {
	w.t.Helper()
	if got := w.read(to); !slices.Equal(got, want) {
		w.t.Errorf("after %v people read %q in %v, want %q", time.Since(w.began), got, to, want)
	}
}

// said returns the calls of some kinds, each as kind, text and time.
func (w *world) said(kinds ...string) (list []string) {
	for _, c := range w.asked(kinds...) {
		list = append(list, fmt.Sprintf("%s %q at %v", c.kind, c.text, c.at))
	}
	return list
}

func (w *world) wantCalls(kinds []string, want ...string) {
	w.t.Helper()
	if got := w.said(kinds...); !slices.Equal(got, want) {
		w.t.Errorf("calls:\n got %q\nwant %q", got, want)
	}
}

// wantCallsAtOnce is like wantCalls, but ignores the order, for calls of several chats.
func (w *world) wantCallsAtOnce(kinds []string, want ...string) {
	w.t.Helper()
	got := slices.Sorted(slices.Values(w.said(kinds...)))
	if slices.Sort(want); !slices.Equal(got, want) {
		w.t.Errorf("calls in any order:\n got %q\nwant %q", got, want)
	}
}
