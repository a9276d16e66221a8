package discord_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/discord"
	"gateway/channels/discord/discordtest"
	"gateway/store/storetest"
)

const (
	token = "MTIz.SECRET"

	person = "4200000000000000042" // Ada
	direct = "5200000000000000001" // the direct chat with Ada
	other  = "4200000000000000043" // Bob
	club   = "6100000000000000001" // a guild
	room   = "6200000000000000001" // a channel in club
	lobby  = "6200000000000000002" // another channel in club
	talk   = "6300000000000000001" // a thread in room
	forum  = "6400000000000000001"
	post   = "6500000000000000001" // in forum
	bot    = "900000000000000001"
)

// patience bounds every wait. Only failing tests wait that long.
const patience = 3 * time.Minute

var ada = bus.Address{Account: "dc", Chat: direct}

func TestMain(m *testing.M) {
	storetest.InMemory()
	// Most of these tests only wait, so more of them run in parallel. A -parallel flag is parsed
	// later and overrides this number.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

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

// A world is a fake Discord and a Channel that uses it.
type world struct {
	*discordtest.Server
	c    *discord.Channel
	opts discord.Options // of c
	in   *channeltest.Inbox
	log  *logBuffer
}

// start returns a world with some people and places. Both options may be nil.
func start(t testing.TB, fake *discordtest.Options, opts *discord.Options) *world {
	t.Helper()
	s := discordtest.New(token, fake)
	url, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddUser(discordtest.User{ID: person, Username: "ada", Name: "Ada Lovelace"})
	s.AddUser(discordtest.User{ID: other, Username: "bob"})
	s.AddDM(person, direct)
	s.AddGuild(club, "Club")
	s.AddChannel(club, room, "general")
	s.AddChannel(club, lobby, "lobby")
	s.AddThread(room, talk, "a talk")
	s.AddForum(club, forum, "questions")
	s.AddThread(forum, post, "a question")
	o := discord.Options{}
	if opts != nil {
		o = *opts
	}
	transport := discord.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	w := &world{Server: s, in: new(channeltest.Inbox), log: new(logBuffer)}
	o.BaseURL, o.Transport = url, transport
	o.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.opts = o
	w.c = discord.New("dc", token, &w.opts)
	t.Cleanup(func() {
		if strings.Contains(w.log.String(), "SECRET") {
			t.Errorf("the log shows the token: %s", w.log)
		}
	})
	return w
}

// run runs the channel, again and again if it fails, until stop is called or the test ends.
func (w *world) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := w.c.Run(ctx, w.in); ctx.Err() == nil {
				w.in.Report(channels.Disconnected, "ended: "+err.Error())
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Run did not return")
		}
	})
	t.Cleanup(stop)
	w.wait(t, "connection", func() bool { return w.Connected() > 0 })
	return stop
}

// wait waits until cond holds.
func (w *world) wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v; states %q, log:\n%s", what, patience, w.in.States(), w.log)
		}
	}
}

// received waits for n messages and returns them.
func (w *world) received(t testing.TB, n int) []bus.InboundMessage {
	t.Helper()
	w.wait(t, "messages", func() bool { return len(w.in.Messages()) >= n })
	return w.in.Messages()
}

func texts(messages []bus.InboundMessage) string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Text)
	}
	return strings.Join(all, " ")
}

// A platform gives the conformance suite the direct chat with Ada.
type platform struct {
	*world
	mu   sync.Mutex
	held []string // messages from the time before the bot connected first
	seen bool
}

// Deliver makes Ada write. A bot that never connected can't know the chat, so her messages wait
// until it does.
func (p *platform) Deliver(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen || p.Connected() > 0 {
		p.flush()
		p.Say(direct, person, text)
		return
	}
	p.held = append(p.held, text)
	if len(p.held) > 1 {
		return
	}
	go func() {
		if p.Wait(context.Background(), func() bool { return p.Connected() > 0 }) == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.flush()
		}
	}()
}

func (p *platform) flush() {
	p.seen = true
	for _, text := range p.held {
		p.Say(direct, person, text)
	}
	p.held = nil
}

func (p *platform) Pending() int { return 0 }

func (p *platform) Texts() (texts []string) {
	for _, s := range p.History(direct) {
		if !s.Deleted {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

func (p *platform) Delete(id string) { p.Server.Delete(direct, id) }
func (p *platform) Refuse() {
	p.Server.Refuse(direct, 50007, "Cannot send messages to this user")
}

func TestConformance(t *testing.T) {
	channeltest.Run(t, func(t *testing.T) channeltest.Fixture {
		w := start(t, nil, nil)
		return channeltest.Fixture{
			Channel: w.c, Platform: &platform{world: w}, Chat: ada,
			Group: club, InGroup: func() bool { return w.InGuild(club) },
			Secret: "SECRET", Log: w.log.String, NoAck: true,
			Ours: []goleak.Option{goleak.IgnoreAnyFunction(
				"gateway/channels/discord/discordtest.(*Server).serveGateway")},
		}
	})
}
