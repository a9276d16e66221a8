package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"gateway/channels/terminal/screen"
)

// A gate is a gateway that screens can be connected to, in the hands of the test.
type gate struct {
	t     *testing.T
	down  error // that dialling ends with
	conn  net.Conn
	heard []frame
	shown []tea.Msg
	ended bool
}

func (g *gate) dial(context.Context) (net.Conn, error) {
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
			g.heard = append(g.heard, f)
		}
		there.Close()
	}()
	return here, nil
}

func (g *gate) wantHeard(want ...frame) {
	g.t.Helper()
	synctest.Wait()
	if !reflect.DeepEqual(g.heard, want) {
		g.t.Errorf("the gateway heard %+v, want %+v", g.heard, want)
	}
	g.heard = nil
}

func (g *gate) writes(f frame) {
	g.t.Helper()
	if err := write(g.conn, f); err != nil {
		g.t.Error(err)
	}
	synctest.Wait()
}

func withLink(t *testing.T, test func(g *gate, l *link, cancel func())) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{t: t}
		l := newLink(g.dial)
		l.show = func(msg tea.Msg) { g.shown = append(g.shown, msg) }
		conn, err := g.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			l.run(ctx, conn)
			g.ended = true
		}()
		test(g, l, cancel)
		cancel()
		if synctest.Wait(); !g.ended {
			t.Error("the link goes on after its context")
		}
	})
}

// A connection that is lost is made again, and what may not have been stored is said again, under
// the same id.
func TestLinkAgain(t *testing.T) {
	withLink(t, func(g *gate, l *link, _ func()) {
		l.Say("1", "one", false)
		l.AskState()
		l.Say("2", "/two\nlines", true)
		g.wantHeard(frame{ID: "1", Text: "one"}, frame{Want: wantState},
			frame{ID: "2", Text: "/two\nlines", Literal: true})
		g.writes(frame{ID: "1", Taken: true})
		g.down = errors.New("not there")
		g.conn.Close()
		synctest.Wait()
		l.Say("3", "three", false)
		if _, lost := g.shown[0].(screen.Lost); !lost || len(g.shown) != 1 {
			t.Fatalf("the screen got %+v", g.shown)
		}
		g.down = nil
		time.Sleep(lastDial) // by the clock of the bubble
		synctest.Wait()
		g.wantHeard(frame{ID: "2", Text: "/two\nlines", Literal: true},
			frame{ID: "3", Text: "three"})
		g.writes(frame{ID: "a", Parts: []string{"p"}, Done: true, Answers: []string{"2"}})
		g.writes(frame{ID: "x", Text: "elsewhere", Said: true})
		g.writes(frame{Want: wantFiles, Text: "no", Files: []string{"notes"}})
		want := []tea.Msg{screen.Joined{}, screen.Message{ID: "p", Done: true},
			screen.Message{ID: "a", Done: true, Answers: []string{"2"}}, screen.Said("elsewhere"),
			screen.Files{Prefix: "no", Names: []string{"notes"}}}
		if got := g.shown[1:]; !reflect.DeepEqual(got, want) {
			t.Errorf("the screen got %+v, want %+v", got, want)
		}
	})
}

// A gateway in this process that stops is not waited for.
func TestLinkEnds(t *testing.T) {
	withLink(t, func(g *gate, _ *link, _ func()) {
		synctest.Wait()
		g.down = errNobody
		g.conn.Close()
		if synctest.Wait(); !g.ended {
			t.Error("the link waits for a gateway that has stopped")
		}
	})
}
