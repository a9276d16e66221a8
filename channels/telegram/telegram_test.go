package telegram_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/telegram"
	"gateway/channels/telegram/telegramtest"
)

const token = "123456:SECRET"

var ada = bus.Address{Account: "tg", Chat: "42"}

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

// start returns a fake Bot API with the person 42, a Channel that uses it, and its log.
func start(t testing.TB) (*telegramtest.Server, *telegram.Channel, *logBuffer) {
	t.Helper()
	return startWith(t, nil, telegram.Options{})
}

// startWith is start with options.
func startWith(
	t testing.TB, server *telegramtest.Options, o telegram.Options,
) (*telegramtest.Server, *telegram.Channel, *logBuffer) {
	t.Helper()
	api := telegramtest.New(token, server)
	url, err := api.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	api.AddUser(telegramtest.User{ID: 42, First: "Ada", Last: "Lovelace", Username: "ada"})
	transport := telegram.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	log := new(logBuffer)
	o.BaseURL = url
	if o.Transport == nil {
		o.Transport = transport
	}
	o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return api, telegram.New("tg", token, &o), log
}

// receive runs c until every update is confirmed, and returns the published messages.
func receive(t *testing.T, api *telegramtest.Server, c *telegram.Channel) []bus.InboundMessage {
	t.Helper()
	return receiveBy(t, api, c, new(channeltest.Inbox))
}

func receiveBy(
	t *testing.T, api *telegramtest.Server, c *telegram.Channel, in *channeltest.Inbox,
) []bus.InboundMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	if err := api.Wait(ctx, func() bool { return api.Pending() == 0 }); err != nil {
		t.Errorf("the updates were not confirmed: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
	if ids := in.Identified(); len(ids) != 1 || ids[0] == "0" {
		t.Errorf("the bot was identified by %q, want its id", ids)
	}
	return in.Messages()
}

// An answering is a transport that gives every call the same result.
type answering struct{ result string }

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"ok":true,"result":` + a.result + `}`))}, nil
}

// run runs c until stop is called.
func run(t *testing.T, c *telegram.Channel) (in *channeltest.Inbox, stop func()) {
	t.Helper()
	in = new(channeltest.Inbox)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	})
	t.Cleanup(stop)
	return in, stop
}

// receiveOne waits until every update is confirmed.
func receiveOne(t *testing.T, api *telegramtest.Server) {
	t.Helper()
	await(t, api, func() bool { return api.Pending() == 0 })
}

// await waits until cond holds. cond must depend on the server's state.
func await(t *testing.T, api *telegramtest.Server, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := api.Wait(ctx, cond); err != nil {
		t.Fatal(err)
	}
}

// A platform gives the conformance suite the chat with person 42.
type platform struct {
	*telegramtest.Server
	mu    sync.Mutex
	clear func()
}

func (p *platform) Deliver(text string) { p.Say(42, 42, text) }

func (p *platform) Texts() (texts []string) {
	for _, s := range p.History(42) {
		if !s.Deleted {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

func (p *platform) Delete(id string) {
	n, _ := strconv.Atoi(id) // a string that is not a number is no message's id
	p.Server.Delete(42, n)
}

func (p *platform) RateLimit(d time.Duration) {
	p.Inject(telegramtest.Fault{
		Method: "sendMessage", Times: 1, RetryAfter: int(d / time.Second),
		Text: "Too Many Requests: retry after " + strconv.Itoa(int(d/time.Second)),
	})
}

func (p *platform) Refuse() { p.Server.Refuse(42, "bot was blocked by the user") }
func (p *platform) Hang()   { p.Inject(telegramtest.Fault{Effect: telegramtest.Hang}) }

func (p *platform) SetOutage(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.clear = p.Inject(telegramtest.Fault{Effect: telegramtest.Drop})
	} else {
		p.clear()
	}
}

func TestConformance(t *testing.T) {
	channeltest.Run(t, func(t *testing.T) channeltest.Fixture {
		api, c, log := start(t)
		api.AddGroup(-7, "Friends")
		return channeltest.Fixture{
			Channel: c, Platform: &platform{Server: api}, Chat: ada,
			Group: "-7", InGroup: func() bool { return api.InGroup(-7) },
			Secret: "SECRET", Log: log.String,
		}
	})
}

func TestRunRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		set   func(*telegramtest.Server)
		words string
		final bool
	}{
		{"revoked token", func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Code: 401, Text: "Unauthorized"})
		}, "@BotFather", true},
		{"malformed token", func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "getUpdates", Code: 404, Text: "Not Found"})
		}, "@BotFather", true},
		{"webhook", func(s *telegramtest.Server) {
			s.SetWebhook("https://x.y")
		}, "webhook", false},
		{"rate limit", func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{RetryAfter: 3})
		}, "3s", false},
		{"no list", func(s *telegramtest.Server) {
			s.Inject(telegramtest.Fault{Method: "getUpdates", Effect: telegramtest.Page})
		}, "502", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, c, _ := start(t)
			tt.set(api)
			err := c.Run(t.Context(), new(channeltest.Inbox))
			if err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("Run = %v, want an error about %s", err, tt.words)
			}
			if _, final := errors.AsType[*channels.AccountError](err); final != tt.final {
				t.Errorf("Run = %v: an AccountError is %v, want %v", err, final, tt.final)
			}
			if n := api.Calls("deleteWebhook"); n != 0 {
				t.Errorf("deleteWebhook was called %d times", n)
			}
		})
	}
}

func TestSecondPoller(t *testing.T) {
	api, c, _ := start(t) // running the channel twice is like two programs with one token
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context(), new(channeltest.Inbox)) }()
	if err := api.Wait(t.Context(), api.Polling); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	again := make(chan error, 1)
	go func() { again <- c.Run(ctx, new(channeltest.Inbox)) }()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("Run = %v, want an error about another program", err)
	}
	cancel()
	<-again
}

func TestBatches(t *testing.T) {
	api, c, log := start(t)
	api.Deliver(
		telegramtest.Message{User: 42, Text: "one"}, telegramtest.Message{User: 42, Text: "two"},
	)
	api.DeliverRaw(`"message":{"message_id":"no number","text":"PRIVATE"}`)
	api.DeliverRaw(`"some_new_thing":{"x":1}`)
	api.Say(42, 42, "three")
	if got, want := texts(receive(t, api, c)), "one two three"; got != want {
		t.Errorf("received %s, want %s", got, want)
	}
	l := log.String()
	if !strings.Contains(l, "update skipped") || strings.Contains(l, "PRIVATE") {
		t.Errorf("the log does not say which update was skipped, or says too much:\n%s", l)
	}
}

// An idleOnce is a transport whose first poll ends without updates.
type idleOnce struct {
	http.RoundTripper
	polled atomic.Bool
}

func (i *idleOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/getUpdates") && !i.polled.Swap(true) {
		return answering{"[]"}.RoundTrip(r)
	}
	return i.RoundTripper.RoundTrip(r)
}

// A poll during which nothing happens does not end the connection.
func TestIdlePoll(t *testing.T) {
	transport := telegram.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	api, c, _ := startWith(t, nil, telegram.Options{Transport: &idleOnce{RoundTripper: transport}})
	api.Say(42, 42, "hi")
	if got := texts(receive(t, api, c)); got != "hi" {
		t.Errorf("received %s, want hi", got)
	}
}

func texts(messages []bus.InboundMessage) string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Text)
	}
	return strings.Join(all, " ")
}

func TestUpdateIDsBeginAgain(t *testing.T) {
	api, c, _ := start(t)
	in := new(channeltest.Inbox)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	for _, text := range []string{"one", "two", "three"} {
		api.Say(42, 42, text)
		if err := api.Wait(ctx, func() bool { return api.Pending() == 0 }); err != nil {
			t.Fatal(err)
		}
		api.RestartUpdateIDs(5)
	}
	cancel()
	<-done
	if got := texts(in.Messages()); got != "one two three" {
		t.Errorf("received %s, want one two three", got)
	}
}

func TestUnreachable(t *testing.T) {
	log := new(logBuffer)
	for _, base := range []string{"http://127.0.0.1:1", "http://bad host", "http://[::1", ":"} {
		c := telegram.New("tg", token, &telegram.Options{
			BaseURL: base, Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		_, err := c.Send(t.Context(), bus.Part{To: ada, Text: "hi"})
		if err == nil || errors.Is(err, channels.ErrUncertain) ||
			errors.Is(err, channels.ErrRefused) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("Send to %s = %v, want an error that says: not delivered", base, err)
		}
		err = c.Run(t.Context(), new(channeltest.Inbox))
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("Run with %s = %v, want an error without the token", base, err)
		}
	}
	if strings.Contains(log.String(), "SECRET") {
		t.Errorf("the log shows the token: %s", log)
	}
}

// BenchmarkEcho measures the time from a message to the answer, including the fake server.
func BenchmarkEcho(b *testing.B) {
	api, c, _ := start(b)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, echo{c}) }()
	b.ReportAllocs()
	const chats = 1000
	for i := range b.N { // not b.Loop, which would stop the clock before the answers have come
		api.Say(0, int64(1+i%chats), "Hello there, how are you today?")
	}
	sent := func() bool { return api.Calls("sendMessage") >= b.N && api.Pending() == 0 }
	if err := api.Wait(ctx, sent); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	cancel()
	<-done
}

// An echo is an intake that answers each message with its own text.
type echo struct{ c *telegram.Channel }

func (echo) Identify(context.Context, string) error { return nil }

func (echo) Recover(_ context.Context, f func()) bool { f(); return true }

func (echo) Cursors(context.Context) (map[string]string, error) { return nil, nil }

func (echo) Report(channels.State, string) {}

func (echo) Flushed() <-chan struct{} { return nil }

func (e echo) Publish(ctx context.Context, b channels.Batch) error {
	var wg sync.WaitGroup
	for _, m := range b.Messages {
		wg.Go(func() {
			_, _ = e.c.Send(ctx, bus.Part{To: m.From, Text: m.Text}) // the server counts
		})
	}
	wg.Wait()
	return nil
}

func BenchmarkSend(b *testing.B) {
	_, c, _ := start(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Send(b.Context(), bus.Part{To: ada, Text: "Hello there"}); err != nil {
			b.Fatal(err)
		}
	}
}

// panickingLog is a log that panics on the record that the channel logs when the bot is blocked.
type panickingLog struct{ slog.Handler }

func (p panickingLog) Enabled(context.Context, slog.Level) bool { return true }

func (p panickingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "membership changed" {
		panic("a bug")
	}
	return nil
}

// An update on which the code panics is skipped and confirmed. The updates after it are
// received.
func TestPanickingUpdate(t *testing.T) {
	api := telegramtest.New(token, nil)
	url, err := api.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	api.AddUser(telegramtest.User{ID: 42, First: "Ada"})
	transport := telegram.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	c := telegram.New("tg", token, &telegram.Options{BaseURL: url, Transport: transport,
		Logger: slog.New(panickingLog{slog.DiscardHandler})})
	api.Say(42, 42, "before")
	api.SetMember(42, 42, "kicked")
	api.SetMember(42, 42, "member")
	api.Say(42, 42, "after")
	var got []string
	for _, m := range receiveBy(t, api, c, &channeltest.Inbox{Sturdy: true}) {
		got = append(got, m.Text)
	}
	if !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("received %q, want what came before and after", got)
	}
}
