package whatsapp_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mau.fi/whatsmeow"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.InMemory()
	// These variables of the library apply to the whole process.
	whatsmeow.WACertPubKey = whatsapptest.RootKey
	whatsmeow.KeepAliveIntervalMin = 300 * time.Millisecond
	whatsmeow.KeepAliveIntervalMax = 400 * time.Millisecond
	whatsmeow.KeepAliveResponseDeadline = time.Second
	// Most of these tests only wait, so more of them run in parallel. A -parallel flag is parsed
	// later and overrides this number.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patience bounds every wait. Only failing tests wait that long.
const patience = 3 * time.Minute

// A logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A world is a fake WhatsApp with a person, and a Channel that is linked to it.
type world struct {
	t      testing.TB
	server *whatsapptest.Server
	ada    *whatsapptest.Person
	ch     *whatsapp.Channel
	path   string // of the channel's store
	url    string
	log    *logBuffer
	in     *channeltest.Inbox
}

// newServer returns a fake WhatsApp. The test fails if a client does something that WhatsApp
// does not know.
func newServer(t testing.TB) (*whatsapptest.Server, string) {
	t.Helper()
	opts := &whatsapptest.Options{Dir: t.TempDir()}
	if os.Getenv("WHATSAPP_TRACE") != "" {
		opts.Log = func(s string) { t.Log(time.Now().Format("05.000"), s) }
	}
	s := whatsapptest.New(opts)
	url, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, v := range s.Violations() {
			t.Error("WhatsApp does not know this:", v)
		}
	})
	return s, url
}

// unlinked returns a world whose channel is not linked yet.
func unlinked(t testing.TB, opts whatsapp.Options) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "wa.db"), log: new(logBuffer),
		in: new(channeltest.Inbox)}
	if os.Getenv("WHATSAPP_TRACE") != "" {
		t.Cleanup(func() { t.Log(w.log) })
	}
	w.server, w.url = newServer(t)
	w.ch = w.channel(opts)
	return w
}

// channel returns another channel for the account, as after a restart.
func (w *world) channel(opts whatsapp.Options) *whatsapp.Channel {
	opts.BaseURL = w.url
	opts.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opts.PollLink = cmp.Or(opts.PollLink, 10*time.Millisecond)
	// The fake may be slow to answer. Without a router, nothing is sent again.
	opts.ConnectWait = cmp.Or(opts.ConnectWait, time.Minute)
	opts.AckWait = cmp.Or(opts.AckWait, time.Minute)
	opts.MarkWait = cmp.Or(opts.MarkWait, time.Minute)
	transport := whatsapp.NewTransport()
	w.t.Cleanup(transport.CloseIdleConnections)
	opts.Transport = transport
	return whatsapp.New("wa", w.path, &opts)
}

// start returns a world with a linked channel and a person called Ada.
func start(t testing.TB) *world { return startWith(t, whatsapp.Options{}) }

func startWith(t testing.TB, opts whatsapp.Options) *world {
	t.Helper()
	w := unlinked(t, opts)
	if err := w.server.PairFile(t.Context(), w.path); err != nil {
		t.Fatal(err)
	}
	w.ada = w.person("Ada", whatsapptest.Known)
	return w
}

func (w *world) person(name string, as whatsapptest.Identity) *whatsapptest.Person {
	w.t.Helper()
	p, err := w.server.NewPerson(w.t.Context(), name, as)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// run runs the channel until the test ends or stop is called. stop returns Run's error.
func (w *world) run() (stop func() error) {
	w.t.Helper()
	return w.runTo(w.ch, w.in)
}

func (w *world) runTo(ch *whatsapp.Channel, in channels.Intake) (stop func() error) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- ch.Run(ctx, in) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("Run did not return")
		}
	})
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

// wait waits until cond holds.
func (w *world) wait(what string, cond func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %v; states %q; the log:\n%s",
				what, patience, w.in.States(), w.log)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// receive waits until n messages were published and returns them.
func (w *world) receive(n int) []bus.InboundMessage {
	w.t.Helper()
	w.wait("messages are published", func() bool { return len(w.in.Messages()) >= n })
	return w.in.Messages()
}

// reported waits until the channel has reported a state that contains words.
func (w *world) reported(words string) {
	w.t.Helper()
	w.wait("reports "+words, func() bool {
		for _, s := range w.in.States() {
			if strings.Contains(s, words) {
				return true
			}
		}
		return false
	})
}

// adas returns the address of the direct chat with Ada.
func (w *world) adas() bus.Address { return bus.Address{Account: "wa", Chat: w.ada.Chat()} }

// say makes Ada write to the bot and returns the message's id.
func (w *world) say(text string) string {
	w.t.Helper()
	id, err := w.ada.Say(w.t.Context(), text)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// send sends a text to Ada and returns its id.
func (w *world) send(text string) string {
	w.t.Helper()
	id, err := w.ch.Send(w.t.Context(), bus.Part{Key: text, To: w.adas(), Text: text})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// seen waits until Ada has seen everything and returns the bot's texts.
func (w *world) seen() []string {
	w.t.Helper()
	w.wait("Ada sees everything", w.ada.Settled)
	return w.ada.Texts()
}

// contextWithPatience returns a context that ends when a test has waited too long.
func contextWithPatience(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}
