package discord_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/discord"
	"gateway/channels/discord/discordtest"
)

// quick has a short time-out for an attempt to connect. On a busy machine, the time-out may end
// an attempt that would have succeeded. So only tests in which one more attempt does no harm use
// it.
var quick = &discord.Options{OpenTimeout: 3 * time.Second}

// in returns the texts from one place, in the order of arrival.
func in(messages []bus.InboundMessage, place string) []string {
	var texts []string
	for _, m := range messages {
		if m.From.Thread == place || m.From.Thread == "" && m.From.Chat == place {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		opts  *discord.Options // nil for the times of the real Discord
		upset func(*world)
		after func(testing.TB, *world) // called after the second message was written; may be nil
		check func(*world) string
	}{
		{name: "drop", upset: func(w *world) { w.Drop() }, check: resumed},
		{name: "op 7", upset: func(w *world) { w.Reconnect() }, check: resumed},
		{name: "unknown error", upset: func(w *world) { w.CloseGateway(4000) }, check: resumed},
		{name: "session timed out", upset: func(w *world) { w.CloseGateway(4009) },
			check: identified},
		{name: "op 9", upset: func(w *world) { w.InvalidSession(false) }, check: identified},
		{name: "op 9 that may be resumed", upset: func(w *world) { w.InvalidSession(true) },
			check: identified},
		{name: "op 9 to a resume", upset: func(w *world) {
			w.RefuseResume(1)
			w.Drop()
		}, check: identified},
		{name: "drop during a resume", upset: func(w *world) {
			w.DropOnResume(1)
			w.Drop()
		}, check: resumed},
		{name: "invalid sequence of a resume", upset: func(w *world) {
			w.CloseOnResume(4007, 1)
			w.Drop()
		}, check: identified},
		{name: "unknown error of a resume", upset: func(w *world) {
			w.CloseOnResume(4000, 1)
			w.Drop()
		}, check: resumed},
		{name: "op 7 first after a resume", opts: quick, upset: func(w *world) {
			w.ReconnectOnResume(1)
			w.Drop()
		}, check: func(w *world) string {
			if s := begunAgain(w); s != "" || strings.Contains(w.log.String(), "stuck") {
				return s
			}
			return "the library was not stuck"
		}},
		{name: "silence", opts: quick, upset: func(w *world) { w.Freeze(true) },
			after: func(t testing.TB, w *world) {
				w.Drop()
				w.wait(t, "attempt to resume", func() bool { return w.Calls("gateway") > 1 })
				w.Freeze(false)
			}, check: nil},
		{name: "zombie", opts: &discord.Options{
			OpenTimeout: 3 * time.Second, Silence: 2 * time.Second,
		}, upset: func(w *world) { w.Freeze(true) },
			after: func(t testing.TB, w *world) {
				w.wait(t, "silence", func() bool {
					return strings.Contains(strings.Join(w.in.States(), "\n"), "no sign of life")
				})
				w.Freeze(false)
			}, check: resumed},
		{name: "outage", opts: &discord.Options{Postpone: 50 * time.Millisecond},
			upset: func(w *world) { w.SetOutage(true) }, after: func(t testing.TB, w *world) {
				w.wait(t, "attempts", func() bool {
					return strings.Count(w.log.String(), "session not resumed") > 5
				})
				w.SetOutage(false)
			}, check: resumed},
		{name: "no answer to a resume", opts: &discord.Options{OpenTimeout: 5 * time.Second},
			upset: func(w *world) {
				w.Inject(discordtest.Fault{Method: "gateway", Effect: discordtest.Hang, Times: 1})
				w.Drop()
			}, check: resumed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, nil, tt.opts)
			w.run(t)
			w.Say(direct, person, "one")
			w.Say(room, other, "in the room")
			w.received(t, 2)
			tt.upset(w)
			w.Say(direct, person, "two")
			w.Say(direct, person, "three")
			if tt.after != nil {
				tt.after(t, w)
			}
			w.received(t, 4)
			w.Say(direct, person, "four")
			got := in(w.received(t, 5), direct)
			if want := []string{"one", "two", "three", "four"}; !slices.Equal(got, want) {
				t.Errorf("received %q, want %q", got, want)
			}
			if tt.check != nil {
				if wrong := tt.check(w); wrong != "" {
					t.Errorf("%s; states %q\n%s", wrong, w.in.States(), w.log)
				}
			}
		})
	}
}

// If every connection ends as soon as the session is resumed, Run ends, so that the pauses between
// its attempts become longer.
func TestShortConnections(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	done := make(chan error, 1)
	go func() { done <- w.c.Run(t.Context(), w.in) }()
	var err error
	dropped := 0
	w.wait(t, "the end of Run", func() bool {
		select {
		case err = <-done:
			return true
		default:
		}
		connected := strings.Count(strings.Join(w.in.States(), "\n"), "connected as")
		if connected > dropped {
			dropped++
			w.Drop()
		}
		return false
	})
	if resumed := w.Calls("resume"); resumed > 5 ||
		!strings.Contains(fmt.Sprint(err), "each connection") {
		t.Errorf("Run = %v after %d resumed connections", err, resumed)
	}
}

// resumed checks that the session was resumed, so that no channel was read again.
func resumed(w *world) string {
	if r, i, l := w.Calls("resume"), w.Calls("identify"), w.Calls("listMessages"); r == 0 || i != 1 ||
		l != 0 {
		return fmt.Sprintf("resumed %d times, identified %d, listed messages %d", r, i, l)
	}
	return ""
}

// identified checks that there was one new session, and that the channels were read after it.
func identified(w *world) string {
	if i := w.Calls("identify"); i > 2 {
		return fmt.Sprintf("identified %d times", i)
	}
	return begunAgain(w)
}

// begunAgain is like identified, but allows more sessions, for tests with short time-outs.
func begunAgain(w *world) string {
	if i, l := w.Calls("identify"), w.Calls("listMessages"); i < 2 || l == 0 {
		return fmt.Sprintf("identified %d times, listed messages %d", i, l)
	}
	return ""
}

func TestNoGoroutineIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name  string
		upset func(*world)
	}{
		{"drop", func(w *world) { w.Drop() }},
		{"op 7", func(w *world) { w.Reconnect() }},
		{"just connected", func(w *world) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			var ends sync.WaitGroup
			for range 4 { // in parallel, because the library sleeps when it closes
				w := start(t, nil, nil)
				stop := w.run(t)
				ends.Go(func() {
					tt.upset(w)
					stop()
					w.Close()
				})
			}
			ends.Wait()
			if err := channeltest.Leaked(before); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestGap(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	stop := w.run(t)
	places := []string{direct, room, lobby, talk, post}
	for _, p := range places {
		w.Say(p, person, "0")
	}
	w.received(t, len(places))
	stop()
	want := map[string][]string{}
	for _, p := range places {
		want[p] = []string{"0"}
	}
	say := func(p string) {
		text := fmt.Sprint(len(want[p]))
		want[p] = append(want[p], text)
		w.Say(p, person, text)
	}
	for i := range 250 {
		say(direct)
		if i%50 == 0 {
			for _, p := range places[1:] {
				say(p)
			}
		}
	}
	w.Refuse(lobby, 50001, "Missing Access")
	gone := len(want[lobby]) - 1
	w.run(t)
	for range 20 { // while the gap is being filled
		for _, p := range places {
			if p != lobby {
				say(p)
			}
		}
	}
	total := -gone
	for _, texts := range want {
		total += len(texts)
	}
	got := w.received(t, total)
	for _, p := range places {
		if p != lobby && !slices.Equal(in(got, p), want[p]) {
			t.Errorf("received %q in %s, want %q", in(got, p), p, want[p])
		}
	}
	w.wait(t, "log", func() bool {
		return strings.Contains(w.log.String(), "can't be read after a gap")
	})
	cursors, _ := w.in.Cursors(t.Context())
	if len(cursors) != len(places) || cursors[""] != "" {
		t.Errorf("the cursors are %v", cursors)
	}
}

func TestGapThatIsTooLong(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	stop := w.run(t)
	w.Say(direct, person, "first")
	w.received(t, 1)
	stop()
	for i := range 1010 {
		w.Say(direct, person, fmt.Sprint(i))
	}
	w.run(t)
	w.wait(t, "log", func() bool { return strings.Contains(w.log.String(), "too many messages") })
	if n := len(w.in.Messages()); n != 1001 {
		t.Errorf("received %d messages, want 1001", n)
	}
}

// A channel that can't be read does not stop the messages of other channels, and loses none
// itself. Its newer messages arrive after those that it missed, in order.
func TestGapThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := start(t, nil, &discord.Options{Postpone: 100 * time.Millisecond})
	stop := w.run(t)
	w.Say(direct, person, "one")
	w.Say(room, person, "room one")
	w.received(t, 2)
	stop()
	w.Say(direct, person, "two")
	w.Say(room, person, "room two")
	repair := w.Inject(discordtest.Fault{Method: "listMessages", Channel: direct})
	w.run(t)
	w.received(t, 3)
	w.Say(direct, person, "three")
	w.Say(room, person, "room three")
	got := w.received(t, 4)
	if list := in(got, room); !slices.Equal(list, []string{"room one", "room two", "room three"}) {
		t.Errorf("received %q in the channel that can be read", list)
	}
	repair()
	got = w.received(t, 6)
	if list := in(got, direct); !slices.Equal(list, []string{"one", "two", "three"}) {
		t.Errorf("received %q in the channel that could not be read", list)
	}
	if n := w.Calls("getMe"); n != 2 {
		t.Errorf("Run began %d times, want 2", n)
	}
}

func TestGapWithRateLimit(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	stop := w.run(t)
	w.Say(direct, person, "one")
	w.received(t, 1)
	stop()
	w.Say(direct, person, "two")
	w.Inject(discordtest.Fault{Method: "listMessages", Times: 2, RetryAfter: 50 * time.Millisecond})
	w.run(t)
	if got := texts(w.received(t, 2)); got != "one two" {
		t.Errorf("received %s", got)
	}
	if n := w.Calls("getMe"); n != 2 {
		t.Errorf("Run began %d times, want 2", n)
	}
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	w := start(t, nil, &discord.Options{Queue: 4})
	var mu sync.Mutex
	blocked, release := false, make(chan struct{})
	w.in.OnPublish = func() error {
		mu.Lock()
		wait := blocked
		mu.Unlock()
		if wait {
			<-release
		}
		return nil
	}
	w.run(t)
	w.Say(direct, person, "0")
	w.received(t, 1)
	mu.Lock()
	blocked = true
	mu.Unlock()
	want := []string{"0"}
	for i := range 50 {
		want = append(want, fmt.Sprint(i+1))
		w.Say(direct, person, want[i+1])
	}
	w.wait(t, "overflow", func() bool { return w.c.Missed() > 0 })
	mu.Lock()
	blocked = false
	close(release)
	mu.Unlock()
	if got := in(w.received(t, len(want)), direct); !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
	if !strings.Contains(strings.Join(w.in.States(), "\n"), "too many events") {
		t.Errorf("the states are %q: the queue was never full", w.in.States())
	}
}

func TestShards(t *testing.T) {
	t.Parallel()
	w := start(t, nil, &discord.Options{Shards: 3, IdentifyEvery: time.Millisecond})
	w.run(t)
	w.wait(t, "shards", func() bool { return w.Connected() == 3 })
	guilds := []string{"6100000000000000001", "6100000000004194305", "6100000000008388609"}
	for i, g := range guilds[1:] {
		w.AddGuild(g, fmt.Sprint("Guild ", i))
		w.AddChannel(g, g[:18]+"9", "general")
	}
	w.Say(room, person, "a")
	w.Say(guilds[1][:18]+"9", person, "b")
	w.Say(guilds[2][:18]+"9", person, "c")
	w.Say(direct, person, "d")
	got := w.received(t, 4)
	var all []string
	for _, m := range got {
		all = append(all, m.Text)
	}
	slices.Sort(all)
	if !slices.Equal(all, []string{"a", "b", "c", "d"}) {
		t.Errorf("received %q", all)
	}
}

func TestRunRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		set   func(*world)
		words string
		final bool
	}{
		{"bad token", func(w *world) { w.SetToken("other") }, "Discord developer portal", true},
		{"bad token for the gateway", func(w *world) { w.RefuseIdentify(4004) }, "bot token", true},
		{"intent", func(w *world) { w.SetContent(false) },
			"switch on the Message Content Intent", true},
		{"shards", func(w *world) { w.RefuseIdentify(4011) }, "number of shards", true},
		{"version", func(w *world) { w.RefuseIdentify(4012) }, "Update the gateway", true},
		{"intents", func(w *world) { w.RefuseIdentify(4013) }, "Update the gateway", true},
		{"unknown", func(w *world) { w.RefuseIdentify(4000) }, "4000", false},
		{"rate limit", func(w *world) {
			w.Inject(discordtest.Fault{RetryAfter: 3 * time.Second})
		}, "3s", false},
		{"no gateway", func(w *world) {
			w.Inject(discordtest.Fault{Method: "gateway", Effect: discordtest.Page})
		}, "bad handshake", false},
		{"hanging gateway", func(w *world) {
			w.Inject(discordtest.Fault{Method: "gateway", Effect: discordtest.Hang})
		}, "gateway", false},
		{"page", func(w *world) {
			w.Inject(discordtest.Fault{Method: "getMe", Effect: discordtest.Page, Status: 503})
		}, "503", false},
		{"no JSON", func(w *world) {
			w.Inject(discordtest.Fault{Method: "getMe", Effect: discordtest.Page, Status: 200})
		}, "garbled", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			opts := &discord.Options{}
			if tt.name == "hanging gateway" {
				opts = quick
			}
			w := start(t, nil, opts)
			tt.set(w)
			err := w.c.Run(t.Context(), w.in)
			if err == nil || !strings.Contains(err.Error(), tt.words) ||
				strings.Contains(err.Error(), "SECRET") {
				t.Errorf("Run = %v, want an error about %s", err, tt.words)
			}
			if _, final := errors.AsType[*channels.AccountError](err); final != tt.final {
				t.Errorf("Run = %v: an AccountError is %v, want %v", err, final, tt.final)
			}
		})
	}
}

func TestTokenIsReset(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	done := make(chan error, 1)
	go func() { done <- w.c.Run(t.Context(), w.in) }()
	w.wait(t, "connection", func() bool { return len(w.in.States()) > 0 })
	w.SetToken("other")
	w.CloseGateway(4004)
	select {
	case err := <-done:
		if _, ok := errors.AsType[*channels.AccountError](err); !ok {
			t.Errorf("Run = %v, want an AccountError", err)
		}
	case <-time.After(patience):
		t.Error("Run did not return")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, base := range []string{
		"http://127.0.0.1:1", "http://bad host", "http://[::1", ":", "ftp://SECRET@x",
	} {
		c := discord.New("dc", token, &discord.Options{BaseURL: base})
		_, err := c.Send(t.Context(), bus.Part{Key: "k", To: ada, Text: "hi"})
		if err == nil || errors.Is(err, channels.ErrUncertain) ||
			errors.Is(err, channels.ErrRefused) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("Send to %s = %v, want an error that says: not delivered", base, err)
		}
		err = c.Run(t.Context(), new(channeltest.Inbox))
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("Run with %s = %v, want an error without the token", base, err)
		}
	}
}

// TestFirstMessageNotStored checks that messages that could not be stored are read again even if
// there is no cursor.
func TestFirstMessageNotStored(t *testing.T) {
	t.Parallel()
	for _, opts := range []*discord.Options{nil, {Queue: 1}} {
		w := start(t, nil, opts)
		full, heard := make(chan struct{}), make(chan struct{})
		var storing atomic.Int32
		w.in.OnPublish = func() error {
			storing.Add(1)
			select {
			case <-heard:
			case <-t.Context().Done():
			}
			select {
			case <-full:
				return nil
			default:
				return errors.New("disk full")
			}
		}
		w.run(t)
		w.Say(direct, person, "one")
		w.wait(t, "storing", func() bool { return storing.Load() == 1 })
		// Meanwhile the session is connected and receives the message in the room.
		w.Say(room, person, "one")
		w.wait(t, "the room", func() bool { return int(storing.Load())+w.c.Missed() == 2 })
		w.Say(direct, person, "two")
		w.Say(room, person, "two")
		close(heard)
		for len(w.in.States()) < 6 {
			time.Sleep(time.Millisecond)
		}
		close(full)
		got := w.received(t, 4)
		for _, p := range []string{direct, room} {
			if !slices.Equal(in(got, p), []string{"one", "two"}) {
				t.Errorf("received %q", in(got, p))
			}
		}
	}
}

// TestTLS checks that an encrypted session also ends.
func TestTLS(t *testing.T) {
	before := goleak.IgnoreCurrent()
	w := start(t, nil, nil)
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v9/gateway" {
			url := "wss" + strings.TrimPrefix(server.URL, "https") + "/gateway"
			_ = json.NewEncoder(rw).Encode(map[string]string{"url": url}) // the client may be gone
			return
		}
		w.ServeHTTP(rw, r)
	}))
	transport := discord.NewTransport()
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	w.c = discord.New("dc", token, &discord.Options{BaseURL: server.URL, Transport: transport})
	stop := w.run(t)
	w.Say(direct, person, "one")
	w.received(t, 1)
	w.Drop()
	w.Say(direct, person, "two")
	if got := texts(w.received(t, 2)); got != "one two" {
		t.Errorf("received %s", got)
	}
	stop()
	server.Close()
	w.Close()
	if err := channeltest.Leaked(before); err != nil {
		t.Error(err)
	}
}
