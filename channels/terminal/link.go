package terminal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/terminal/screen"
)

// A link is a screen's connection to the gateway. It reconnects when the connection is lost, and
// sends again what the gateway may not have stored. The gateway recognises repeated messages by
// their ids.
type link struct {
	dial func(context.Context) (net.Conn, error)
	show func(tea.Msg) // of the screen; unused in a conversation of lines
	wake bus.Signal    // when there is something to write

	// receive handles a frame from the gateway.
	receive func(frame)

	mu    sync.Mutex
	queue []frame // frames to write
	open  []frame // messages that may not be stored yet
}

var _ screen.Gateway = (*link)(nil)

// newLink returns a link that is not connected, for a drawn screen. show must be set before run.
func newLink(dial func(context.Context) (net.Conn, error)) *link {
	l := &link{dial: dial, wake: bus.NewSignal()}
	l.receive = l.draw
	return l
}

// Send implements [screen.Gateway].
func (l *link) Send(id, text string, literal bool) {
	l.put(frame{ID: id, Text: text, Literal: literal})
}

// AskState implements [screen.Gateway].
func (l *link) AskState() { l.put(frame{Request: wantState}) }

// AskFiles implements [screen.Gateway].
func (l *link) AskFiles(prefix string) { l.put(frame{Request: wantFiles, Text: prefix}) }

// put queues a frame. A message also stays in open until it is stored. A request does not: after a
// lost connection its answer would be useless.
func (l *link) put(f frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, f)
	if f.Request == "" {
		l.open = append(l.open, f)
	}
	l.wake.Ring()
}

// Intervals between attempts to reconnect.
const (
	firstDial = 200 * time.Millisecond
	lastDial  = 2 * time.Second
)

// run keeps the link connected until ctx is done or the gateway is stopping. conn is the first
// connection.
func (l *link) run(ctx context.Context, conn net.Conn) {
	for {
		l.serve(ctx, conn)
		if ctx.Err() != nil {
			return
		}
		l.show(screen.Lost{Reason: "The gateway has stopped. I will reconnect when it is back."})
		wait := firstDial
		for {
			var err error
			if conn, err = l.dial(ctx); err == nil {
				break
			}
			if errors.Is(err, errNotAttached) || !channels.Sleep(ctx, wait) {
				return
			}
			wait = min(2*wait, lastDial)
		}
		l.show(screen.Joined{})
		l.mu.Lock()
		// The queue holds no message that open does not have, so this loses only requests.
		l.queue = slices.Clone(l.open)
		l.wake.Ring()
		l.mu.Unlock()
	}
}

// newLines returns a scanner of the frames from conn. A line longer than maxLine ends it.
func newLines(conn net.Conn) *bufio.Scanner {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	return lines
}

// serve reads and writes until the connection ends or ctx is done.
func (l *link) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	wg.Go(func() { l.write(ctx, conn) })
	for lines := newLines(conn); lines.Scan(); {
		var f frame
		if json.Unmarshal(lines.Bytes(), &f) != nil {
			break
		}
		if f.Stored {
			l.stored(f.ID)
		}
		l.receive(f)
	}
	conn.Close()
}

// write writes the queued frames. If that fails, it closes the connection.
func (l *link) write(ctx context.Context, conn net.Conn) {
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		queue := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, f := range queue {
			if write(conn, f) != nil {
				conn.Close()
				return
			}
		}
	}
}

// stored records that a message is stored.
func (l *link) stored(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(o frame) bool { return o.ID == id })
}

// draw shows a frame from the gateway on a drawn screen.
func (l *link) draw(f frame) {
	switch {
	case f.Stored:
	case f.State != nil:
		l.show(f.State)
	case f.Request == wantFiles:
		l.show(screen.Files{Prefix: f.Text, Names: f.Files})
	case f.Said:
		l.show(screen.OtherScreenMessage(clean(f.Text)))
	default:
		for _, id := range f.Parts {
			l.show(screen.Message{ID: id, Done: true})
		}
		l.show(screen.Message{ID: f.ID, Text: clean(f.Text), Buttons: f.Buttons, Done: f.Done,
			Answers: f.Answers})
	}
}
