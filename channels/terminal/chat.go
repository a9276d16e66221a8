package terminal

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

func newLines(conn net.Conn) *bufio.Scanner {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 2*maxLine)
	return lines
}

// ErrLost reports that the gateway ended the connection.
var ErrLost = errors.New("the gateway has stopped")

// pause is how long an answer must rest before its line is ended, and farewell how long
// it must after the end of the input.
const (
	pause    = 300 * time.Millisecond
	farewell = 1500 * time.Millisecond
)

// Chat talks to the gateway at the other end of conn for the person at s, until the input
// ends, ctx ends, or the connection is lost (ErrLost). After the end of an input that is not
// typed it stays until what was asked is answered.
func Chat(ctx context.Context, conn net.Conn, s *Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	frames, lines := make(chan frame), make(chan string)
	said, lost := make(chan frame), make(chan error, 1)
	go readFrames(ctx, conn, frames)                     // ends with conn
	go func() { lost <- writeFrames(ctx, conn, said) }() // ends with ctx
	go readInput(ctx, s, lines)                          // ends with the input, which may outlive us
	c := &conversation{screen: s, own: make(map[string]bool)}
	defer s.endLine()
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	for {
		out, first := c.outgoing(said)
		next := lines
		if !s.typed && c.busy { // a script's lines are answered one after another
			next = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return ErrLost
		case out <- first:
			c.queue = c.queue[1:]
		case f, ok := <-frames:
			if !ok {
				return ErrLost
			}
			if err := c.show(f); err != nil {
				return fmt.Errorf("terminal: %w", err)
			}
			quiet.Reset(c.rest())
		case line, ok := <-next:
			if !ok {
				if s.typed || !c.busy {
					return nil
				}
				c.leaving, lines = true, nil
				break
			}
			c.say(line)
		case <-s.interrupts:
			if !c.waits() {
				return nil
			}
			c.say("/stop")
		case <-quiet.C:
			if c.waits() {
				break
			}
			if c.busy = false; c.leaving {
				return nil
			}
			s.endLine()
		}
	}
}

func readFrames(ctx context.Context, conn net.Conn, frames chan<- frame) {
	defer close(frames)
	lines := newLines(conn)
	for lines.Scan() {
		var f frame
		if json.Unmarshal(lines.Bytes(), &f) != nil {
			return
		}
		select {
		case frames <- f:
		case <-ctx.Done():
			return
		}
	}
}

func writeFrames(ctx context.Context, conn net.Conn, frames <-chan frame) error {
	for {
		select {
		case f := <-frames:
			if err := write(conn, f); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func readInput(ctx context.Context, s *Screen, lines chan<- string) {
	defer close(lines)
	for {
		line, err := s.readLine()
		if line = strings.TrimSpace(line); line != "" {
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A conversation is what one screen knows of it.
type conversation struct {
	screen  *Screen
	queue   []frame         // to be written
	own     map[string]bool // messages said that are not known to be taken
	asked   bool            // something was said since the last answer
	busy    bool            // the last answer may go on
	leaving bool            // the input has ended

	id, text string // the message that is shown, and as much of it as is
}

// waits reports whether something said has no answer yet.
func (c *conversation) waits() bool { return c.asked || len(c.own) > 0 }

// rest returns how long nothing must come before the answer is taken to be complete.
func (c *conversation) rest() time.Duration {
	if c.leaving {
		return farewell
	}
	return pause
}

// outgoing returns said and what to write there, or nil if there is nothing to write.
func (c *conversation) outgoing(said chan<- frame) (chan<- frame, frame) {
	if len(c.queue) == 0 {
		return nil, frame{}
	}
	return said, c.queue[0]
}

func (c *conversation) say(line string) {
	id := rand.Text()
	c.own[id], c.asked, c.busy = true, true, true
	c.id, c.text = "", ""
	c.queue = append(c.queue, frame{ID: id, Text: line})
}

// show prints what f adds to what is there. Of a text that became another one, the part
// that differs is printed on a new line.
func (c *conversation) show(f frame) error {
	if f.Taken {
		delete(c.own, f.ID)
		return nil
	}
	c.asked = false
	if f.ID != c.id {
		c.screen.endLine()
		c.id, c.text = f.ID, ""
	}
	n := 0
	for n < len(c.text) && n < len(f.Text) && c.text[n] == f.Text[n] {
		n++
	}
	if n < len(c.text) {
		c.screen.endLine()
	}
	for n > 0 && n < len(f.Text) && f.Text[n]&0xC0 == 0x80 { // not within a rune
		n--
	}
	c.text = f.Text
	return c.screen.print(f.Text[n:])
}
