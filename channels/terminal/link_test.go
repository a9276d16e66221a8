package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"gateway/channels/terminal/screen"
)

// A gate is a gateway that a link can connect to. The test plays the gateway.
type gate struct {
	t *testing.T

	mu    sync.Mutex
	down  error // the error of each new connection, or nil
	conn  net.Conn
	heard []frame
	shown []tea.Msg
	ended chan struct{} // closed when the link has ended
}

// breaks ends the connection. New connections fail with err, unless it is nil.
func (g *gate) breaks(err error) {
	g.mu.Lock()
	g.down = err
	g.conn.Close()
	g.mu.Unlock()
	synctest.Wait()
}

// gets returns the messages that the screen got since the last call.
func (g *gate) gets() []tea.Msg {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	shown := g.shown
	g.shown = nil
	return shown
}

// hasEnded reports whether the link has ended.
func (g *gate) hasEnded() bool {
	synctest.Wait()
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

func (g *gate) dial(context.Context) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down != nil {
		return nil, g.down
	}
	here, there := net.Pipe()
	g.conn = there
	go func() {
		for lines := newLines(there); lines.Scan(); {
			var f frame
			if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
				g.t.Error(err)
			}
			g.mu.Lock()
			g.heard = append(g.heard, f)
			g.mu.Unlock()
		}
		there.Close()
	}()
	return here, nil
}

func (g *gate) wantHeard(want ...frame) {
	g.t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !reflect.DeepEqual(g.heard, want) {
		g.t.Errorf("the gateway heard %+v, want %+v", g.heard, want)
	}
	g.heard = nil
}

func (g *gate) writes(f frame) {
	g.t.Helper()
	g.mu.Lock()
	conn := g.conn
	g.mu.Unlock()
	if err := write(conn, f); err != nil {
		g.t.Error(err)
	}
	synctest.Wait()
}

func withLink(t *testing.T, test func(g *gate, l *link, cancel func())) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{t: t, ended: make(chan struct{})}
		l := newLink(g.dial)
		l.show = func(msg tea.Msg) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.shown = append(g.shown, msg)
		}
		conn, err := g.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			l.run(ctx, conn)
			close(g.ended)
		}()
		test(g, l, cancel)
		cancel()
		if !g.hasEnded() {
			t.Error("the link goes on after its context")
		}
	})
}

// A lost connection is made again. Messages that may not have been stored are sent again with
// the same ids.
func TestLinkAgain(t *testing.T) {
	withLink(t, func(g *gate, l *link, _ func()) {
		l.Send("1", "one", false)
		l.AskState()
		l.Send("2", "/two\nlines", true)
		g.wantHeard(frame{ID: "1", Text: "one"}, frame{Request: wantState},
			frame{ID: "2", Text: "/two\nlines", Literal: true})
		g.writes(frame{ID: "1", Stored: true})
		g.breaks(errors.New("not there"))
		l.Send("3", "three", false)
		got := g.gets()
		if len(got) != 1 || reflect.TypeOf(got[0]) != reflect.TypeFor[screen.Lost]() {
			t.Errorf("the screen got %+v", got)
		}
		g.breaks(nil)
		time.Sleep(lastDial) // in the fake time of the bubble
		synctest.Wait()
		g.wantHeard(frame{ID: "2", Text: "/two\nlines", Literal: true},
			frame{ID: "3", Text: "three"})
		g.writes(frame{ID: "a", Parts: []string{"p"}, Done: true, Answers: []string{"2"}})
		g.writes(frame{ID: "x", Text: "elsewhere", Said: true})
		g.writes(frame{Request: wantFiles, Text: "no", Files: []string{"notes"}})
		want := []tea.Msg{screen.Joined{}, screen.Message{ID: "p", Done: true},
			screen.Message{ID: "a", Done: true,
				Answers: []string{"2"}}, screen.OtherScreenMessage("elsewhere"),
			screen.Files{Prefix: "no", Names: []string{"notes"}}}
		if got := g.gets(); !reflect.DeepEqual(got, want) {
			t.Errorf("the screen got %+v, want %+v", got, want)
		}
	})
}

// The link does not wait for a gateway in this process that has stopped.
func TestLinkEnds(t *testing.T) {
	withLink(t, func(g *gate, _ *link, _ func()) {
		synctest.Wait()
		g.breaks(errNotAttached)
		if !g.hasEnded() {
			t.Error("the link waits for a gateway that has stopped")
		}
	})
}
