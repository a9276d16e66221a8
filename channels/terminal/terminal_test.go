package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/terminal/screen"
)

// The conformance suite doesn't fit this channel, because it has no platform. Nothing is
// delivered again, a failure ends a screen instead of Run, and nobody refuses or limits
// anything. The tests in this file check the same contract.

var mainChat = bus.Address{Account: "term", Chat: MainChat}

// A terminalFixture is a channel that runs in a synctest bubble.
type terminalFixture struct {
	*Channel
	t     *testing.T
	inbox channeltest.Inbox
	log   strings.Builder
	stop  func()
}

func inRoom(t *testing.T, test func(r *terminalFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &terminalFixture{t: t}
		r.Channel = New("term", &Options{Logger: slog.New(slog.NewTextHandler(&r.log, nil))})
		r.stop = run(t, r.Channel, &r.inbox)
		test(r)
	})
}

// run runs c until the test ends or stop is called, and checks how it ends.
func run(t *testing.T, c *Channel, in channels.Intake) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, in) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// A client is the other end of a screen.
type client struct {
	t    *testing.T
	conn net.Conn

	mu   sync.Mutex
	got  []frame
	over bool // the connection has ended
}

func (r *terminalFixture) dial() *client {
	r.t.Helper()
	conn, err := r.Dial(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return &client{t: r.t, conn: conn}
}

// screen attaches a client that reads all frames.
func (r *terminalFixture) screen() *client {
	r.t.Helper()
	c := r.dial()
	go c.read()
	synctest.Wait()
	return c
}

func (c *client) read() {
	for lines := newLines(c.conn); lines.Scan(); {
		var f frame
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			c.t.Error(err)
		}
		c.mu.Lock()
		c.got = append(c.got, f)
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

func (c *client) says(line string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(line + "\n")); err != nil {
		c.t.Error(err)
	}
	synctest.Wait()
}

func (c *client) wantFrames(want ...frame) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !(len(c.got) == 0 && len(want) == 0) && !reflect.DeepEqual(c.got, want) {
		c.t.Errorf("the screen got %+v, want %+v", c.got, want)
	}
}

func (c *client) wantOver(want bool) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != want {
		c.t.Errorf("the connection has ended: %v, want %v", c.over, want)
	}
}

func TestReceive(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		s := r.screen()
		s.says(`{"id":"1","text":"hello"}`)
		s.says(`{"id":"2","text":"again\nand again"}`)
		s.says(`{"id":"2","text":"again\nand again"}`) // stored once, but acknowledged again
		s.wantFrames(frame{ID: "1", Stored: true}, frame{ID: "2", Stored: true},
			frame{ID: "2", Stored: true})
		got := r.inbox.Messages()
		if len(got) != 2 || got[1].Text != "again\nand again" {
			t.Fatalf("received %+v", got)
		}
		m, want := got[0], bus.InboundMessage{ID: "1", From: mainChat,
			Sender: bus.Sender{ID: Sender}, Text: "hello", Time: time.Now(), Addressed: true}
		if !reflect.DeepEqual(m, want) {
			t.Errorf("received %+v, want %+v", m, want)
		}
	})
}

// A message is acknowledged only when it is stored.
func TestTakenWhenStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		in := &channeltest.Inbox{OnPublish: func() error { <-release; return nil }}
		r := &terminalFixture{Channel: New("term", nil), t: t}
		run(t, r.Channel, in)
		s, other := r.screen(), r.screen()
		s.says(`{"id":"1","text":"hello"}`)
		s.wantFrames()
		other.wantFrames()
		close(release)
		s.wantFrames(frame{ID: "1", Stored: true})
		other.wantFrames(frame{ID: "1", Text: "hello", Said: true})
	})
}

// When the gateway begins to stop, a connected screen still shows the messages that are sent.
// Its own messages are no longer accepted, and nobody waits for another screen.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &channeltest.Inbox{Open: make(chan struct{})}
		r := &terminalFixture{Channel: New("term", nil), t: t}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx, in) }()
		s, other := r.screen(), r.dial()
		cancel()
		synctest.Wait()
		if _, err := r.Send(t.Context(), bus.Part{Key: "1", To: mainChat, Text: "hi"}); err != nil {
			t.Errorf("Send = %v", err)
		}
		s.wantFrames(frame{ID: "1", Text: "hi"})
		s.wantOver(false)
		s.conn.Close()
		other.conn.Close()
		_, err := r.Send(t.Context(), bus.Part{Key: "2", To: mainChat, Text: "hi"})
		if !errors.Is(err, errNotAttached) {
			t.Errorf("Send without a screen = %v, want %v", err, errNotAttached)
		}
		close(in.Open)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	})
}

// A message that could not be stored is not acknowledged. Its screen is disconnected, and other
// screens are not affected.
func TestNotStored(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		full := errors.New("disk full")
		r.inbox.OnPublish = func() error { return full }
		s, other := r.screen(), r.screen()
		s.says(`{"id":"1","text":"hello"}`)
		s.wantFrames()
		s.wantOver(true)
		other.wantOver(false)
		if !strings.Contains(r.log.String(), "disk full") {
			t.Errorf("log is %q", r.log.String())
		}
		r.inbox.OnPublish = nil
		other.says(`{"id":"1","text":"hello"}`)
		other.wantFrames(frame{ID: "1", Stored: true})
	})
}

// A client that sends an invalid line loses its connection. Other clients are not affected.
func TestGarbage(t *testing.T) {
	long := strings.Repeat("x", maxText)
	for name, line := range map[string]string{
		"no JSON": "hello", "another type": `{"id":7}`, "list": "[]", "no id": `{"text":"hello"}`,
		"no text": `{"id":"1"}`, "empty": "", "text too long": `{"id":"1","text":"x` + long + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(r *terminalFixture) {
				s, other := r.screen(), r.screen()
				s.says(line)
				s.wantOver(true)
				s.wantFrames()
				if !strings.Contains(r.log.String(), "not a message") {
					t.Errorf("log is %q", r.log.String())
				}
				other.says(`{"id":"2","text":"` + long + `"}`) // the longest possible text
				other.wantFrames(frame{ID: "2", Stored: true})
			})
		})
	}
}

// The reader stops reading a line that does not end.
func TestEndlessLine(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		s := r.screen()
		written := 0
		for written < 2*maxLine {
			n, err := s.conn.Write(make([]byte, 1<<16))
			written += n
			if err != nil {
				break
			}
		}
		s.wantOver(true)
		if written > maxLine+1<<16 {
			t.Errorf("%d bytes were taken, want %d at most", written, maxLine)
		}
	})
}

// All screens show the same. When one leaves, the others still work.
func TestSeveralScreens(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		a, b := r.screen(), r.screen()
		ctx := r.t.Context()
		id, err := r.Send(ctx, bus.Part{Key: "k", To: mainChat, Text: "hel"})
		if err != nil || id != "k" {
			t.Errorf("Send = %q, %v", id, err)
		}
		if err := r.Edit(ctx, mainChat, id, "hello"); err != nil {
			t.Errorf("Edit = %v", err)
		}
		r.Finish(ctx, mainChat, []string{"j", id}, []string{"q"})
		want := []frame{{ID: "k", Text: "hel"}, {ID: "k", Text: "hello"},
			{ID: "k", Done: true, Parts: []string{"j"}, Answers: []string{"q"}}}
		a.wantFrames(want...)
		b.wantFrames(want...)
		a.conn.Close()
		synctest.Wait()
		if _, err := r.Send(ctx, bus.Part{Key: "l", To: mainChat, Text: "next"}); err != nil {
			t.Errorf("Send = %v", err)
		}
		b.wantFrames(append(want, frame{ID: "l", Text: "next"})...)
	})
}

// A screen that reads nothing does not block other screens, and is disconnected.
func TestSlowScreen(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		for range 5 {
			r.dial() // reads nothing
		}
		s := r.screen()
		began := time.Now()
		sent := make(chan error, 1)
		go func() {
			_, err := r.Send(r.t.Context(), bus.Part{Key: "k", To: mainChat, Text: "hello"})
			sent <- err
		}()
		s.wantFrames(frame{ID: "k", Text: "hello"})
		if err := <-sent; err != nil || time.Since(began) != writeTime {
			t.Errorf("Send = %v after %v", err, time.Since(began))
		}
		synctest.Wait()
		began = time.Now()
		if _, err := r.Send(r.t.Context(), bus.Part{Key: "l", To: mainChat}); err != nil {
			t.Errorf("Send = %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the slow screen still delays others, by %v", took)
		}
	})
}

// Without a screen, a message waits for one, as long as the channel runs.
func TestSendWaits(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		sent := make(chan error, 1)
		go func() {
			_, err := r.Send(r.t.Context(), bus.Part{Key: "k", To: mainChat, Text: "hello"})
			sent <- err
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-sent:
			t.Fatalf("Send = %v without a screen", err)
		default:
		}
		s := r.screen()
		s.wantFrames(frame{ID: "k", Text: "hello"})
		if err := <-sent; err != nil {
			t.Errorf("Send = %v", err)
		}
	})
}

func TestSendEnds(t *testing.T) {
	for name, end := range map[string]func(r *terminalFixture, cancel func()){
		"with its context": func(_ *terminalFixture, cancel func()) { cancel() },
		"with the channel": func(r *terminalFixture, _ func()) { r.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(r *terminalFixture) {
				ctx, cancel := context.WithCancel(r.t.Context())
				defer cancel()
				sent := make(chan error, 1)
				go func() {
					_, err := r.Send(ctx, bus.Part{Key: "k", To: mainChat, Text: "hello"})
					sent <- err
				}()
				synctest.Wait()
				end(r, cancel)
				if err := <-sent; err == nil || errors.Is(err, channels.ErrRefused) {
					t.Errorf("Send = %v, want an error that may be tried again", err)
				}
			})
		})
	}
}

// Without a screen, there is nothing to edit. The next screen gets the whole text.
func TestEditWithoutScreen(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		if err := r.Edit(r.t.Context(), mainChat, "k", "x"); !errors.Is(err, channels.ErrRefused) {
			t.Errorf("Edit = %v, want %v", err, channels.ErrRefused)
		}
		r.Finish(r.t.Context(), mainChat, []string{"k"}, nil)
	})
}

// When the channel ends, its screens end, too, and no new one can connect.
func TestEnd(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		s := r.screen()
		r.stop()
		s.wantOver(true)
		if _, err := r.Dial(r.t.Context()); !errors.Is(err, errNotAttached) {
			t.Errorf("Dial after the end = %v, want %v", err, errNotAttached)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := New("term", nil).Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial before the beginning = %v", err)
		}
	})
}

func TestLimits(t *testing.T) {
	if l := New("term", nil).Limits(mainChat); l.Text != 0 || l.EditInterval > 100*time.Millisecond {
		t.Errorf("Limits = %+v, want any length, and a text that flows", l)
	}
}

// socketPath returns a path that is short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}

// talkOver sends a message over the socket and checks that it is acknowledged.
func talkOver(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	for deadline := time.Now().Add(3 * time.Minute); err != nil && time.Now().Before(deadline); {
		conn, err = net.Dial("unix", path) // the socket is still being opened
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := write(conn, frame{ID: "1", Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	lines := newLines(conn)
	if !lines.Scan() || lines.Text() != `{"id":"1","taken":true}` {
		t.Errorf("the screen got %q", lines.Text())
	}
}

// Only the owner can use the socket. It replaces a socket that was left behind, and is removed
// with the channel.
func TestSocket(t *testing.T) {
	path := socketPath(t)
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	c := New("term", &Options{Socket: path})
	stop := run(t, c, new(channeltest.Inbox))
	talkOver(t, path)
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("Stat = %v, %v, want a mode of 0600", st, err)
	}
	stop()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end Stat = %v, want %v", err, fs.ErrNotExist)
	}
}

// If no socket can be created, the gateway's own chat still works.
func TestNoSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &terminalFixture{t: t}
		r.Channel = New("term", &Options{Socket: filepath.Join(t.TempDir(), "no", "such", "folder"),
			Logger: slog.New(slog.NewTextHandler(&r.log, nil))})
		run(t, r.Channel, &r.inbox)
		s := r.screen()
		s.says(`{"id":"1","text":"hello"}`)
		s.wantFrames(frame{ID: "1", Stored: true})
		if !strings.Contains(r.log.String(), "level=ERROR") {
			t.Errorf("log is %q", r.log.String())
		}
	})
}

// An exhaustedListener is a listener that has no free file descriptors for a while.
type exhaustedListener struct {
	failures int
	conns    chan net.Conn
}

func (l *exhaustedListener) Accept() (net.Conn, error) {
	if l.failures--; l.failures >= 0 {
		return nil, errors.New("too many open files")
	}
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l *exhaustedListener) Close() error   { close(l.conns); return nil }
func (l *exhaustedListener) Addr() net.Addr { return nil }

// After a shortage of file descriptors, screens are accepted again.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &exhaustedListener{failures: 3, conns: make(chan net.Conn, 1)}
		here, there := net.Pipe()
		defer here.Close()
		l.conns <- there
		accepted := make(chan net.Conn, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			New("term", nil).accept(ctx, l, func(c net.Conn) { accepted <- c })
			close(done)
		}()
		if c := <-accepted; c != there || time.Since(began) != 3*acceptPause {
			t.Errorf("accepted %v after %v", c, time.Since(began))
		}
		cancel()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// A fakeHost is a gateway that answers requests.
type fakeHost struct{ err error }

func (h fakeHost) State(context.Context) (*State, error) { return &State{Name: "g"}, h.err }
func (h fakeHost) Files(prefix string) []string          { return []string{prefix + "tes.txt"} }

// Only the screen that asks gets the answer. A screen whose request fails still works.
func TestAsk(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		a, b := r.screen(), r.screen()
		a.says(`{"want":"state"}`) // before the gateway is set
		a.wantFrames()
		r.SetHost(fakeHost{errors.New("no database")})
		a.says(`{"want":"state"}`)
		a.wantFrames()
		r.SetHost(fakeHost{})
		a.says(`{"want":"state"}`)
		a.says(`{"want":"files","text":"no"}`)
		a.wantFrames(frame{Request: wantState, State: &State{Name: "g"}},
			frame{Request: wantFiles, Text: "no", Files: []string{"notes.txt"}})
		b.wantFrames()
		a.wantOver(false)
	})
}

// A message is sent with its buttons, and a literal text stays literal.
func TestButtons(t *testing.T) {
	inRoom(t, func(r *terminalFixture) {
		s := r.screen()
		part := bus.Part{Key: "k", To: mainChat, Text: "Shall I?",
			Buttons: []bus.Button{{Label: "Yes", Text: "/answer 1", Number: 1}}}
		if _, err := r.Send(r.t.Context(), part); err != nil {
			t.Error(err)
		}
		s.says(`{"id":"1","text":"/stop\nit","literal":true}`)
		s.wantFrames(frame{ID: "k", Text: "Shall I?",
			Buttons: []screen.Button{{Label: "Yes", Text: "/answer 1", Number: 1}}},
			frame{ID: "1", Stored: true})
	})
}
