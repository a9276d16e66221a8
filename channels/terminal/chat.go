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

// pause is how long an answer must rest before the prompt comes back, and farewell how long
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
	go readFrames(ctx, conn, frames) // ends with conn
	go readInput(ctx, s, lines)      // ends with the input, which may outlive us
	c := &conversation{conn: conn, screen: s, own: make(map[string]bool)}
	defer s.endLine()
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f, ok := <-frames:
			if !ok {
				return ErrLost
			}
			c.show(f)
			quiet.Reset(c.rest())
		case line, ok := <-lines:
			if !ok {
				if s.typed || !c.waits() {
					return nil
				}
				c.leaving, lines = true, nil
				break
			}
			if err := c.say(line); err != nil {
				return ErrLost
			}
		case <-s.interrupts:
			if !c.waits() {
				return nil
			}
			if err := c.say("/stop"); err != nil {
				return ErrLost
			}
		case <-quiet.C:
			if c.leaving && !c.waits() {
				return nil
			}
			s.prompt()
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
	conn    net.Conn
	screen  *Screen
	own     map[string]bool // messages said that are not known to be taken
	asked   bool            // something was said since the last answer
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

func (c *conversation) say(line string) error {
	id := rand.Text()
	c.own[id], c.asked = true, true
	c.screen.hidePrompt()
	c.id, c.text = "", ""
	return write(c.conn, frame{ID: id, Text: line})
}

// show prints what f adds to what is there. Of a text that became another one, the part
// that differs is printed on a new line.
func (c *conversation) show(f frame) {
	if f.Taken {
		delete(c.own, f.ID)
		return
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
	fmt.Fprint(c.screen, f.Text[n:])
	c.text = f.Text
}
