package terminal

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// ErrLost reports that the connection to the gateway ended.
var ErrLost = errors.New("the gateway has stopped, or ended the connection")

// chatLines talks to the gateway at the other end of conn for s, until the input ends, ctx ends, or
// the connection is lost (ErrLost). It closes conn. Each line is a message.
func chatLines(ctx context.Context, conn net.Conn, s *Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer conn.Close()
	defer cancel()
	frames, lines, said := make(chan frame), make(chan string), make(chan frame)
	wg.Go(func() { readFrames(ctx, conn, frames) })
	wg.Go(func() { writeFrames(ctx, conn, said) })
	go readInput(ctx, s, lines) // ends with the input, which may outlive us
	c := &conversation{screen: s, own: make(map[string]bool),
		growing: make(map[string]string), earlier: make(map[string]bool)}
	for {
		out, first := c.outgoing(said)
		next := lines
		if s.paced && c.waits() {
			next = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case out <- first:
			c.queue = c.queue[1:]
		case f, ok := <-frames:
			if !ok {
				return c.lost(ctx)
			}
			if err := c.take(f); err != nil {
				return fmt.Errorf("terminal: %w", err)
			}
		case line, ok := <-next:
			if !ok || line == "/exit" || line == "/quit" {
				return nil
			}
			if len(line) > maxText {
				return fmt.Errorf("terminal: a line of %d bytes is too long; %d is the most",
					len(line), maxText)
			}
			c.say(line)
		}
	}
}

// readFrames passes on what the gateway writes, and closes frames when the connection ends.
func readFrames(ctx context.Context, conn net.Conn, frames chan<- frame) {
	defer close(frames)
	for lines := newLines(conn); lines.Scan(); {
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

// writeFrames writes what is said. If it can't, it ends the connection.
func writeFrames(ctx context.Context, conn net.Conn, said <-chan frame) {
	for {
		select {
		case f := <-said:
			if write(conn, f) != nil {
				conn.Close()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func readInput(ctx context.Context, s *Screen, lines chan<- string) {
	defer close(lines)
	for {
		line, err := s.readLine()
		if line != "" {
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

func newLines(conn net.Conn) *bufio.Scanner {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	return lines
}

// A conversation is what one screen knows of it.
type conversation struct {
	screen  *Screen
	queue   []frame           // to be written
	own     map[string]bool   // messages said that are not known to be taken
	asked   bool              // something was said, or an answer grows: none is complete since
	growing map[string]string // what messages say that are not complete, by id
	earlier map[string]bool   // of them, those that grew before something newer was said
}

// waits reports whether something said has no answer yet.
func (c *conversation) waits() bool { return c.asked || len(c.own) > 0 }

// outgoing returns said and what to write there, or nil if there is nothing to write.
func (c *conversation) outgoing(said chan<- frame) (chan<- frame, frame) {
	if len(c.queue) == 0 {
		return nil, frame{}
	}
	return said, c.queue[0]
}

func (c *conversation) say(line string) {
	id := rand.Text()
	c.own[id], c.asked = true, true
	for id := range c.growing {
		c.earlier[id] = true
	}
	c.queue = append(c.queue, frame{ID: id, Text: line})
}

// lost returns what the end of the connection means.
func (c *conversation) lost(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case len(c.own) > 0:
		return fmt.Errorf("%w; it may not have taken your last message", ErrLost)
	}
	return ErrLost
}

// take shows what f says.
func (c *conversation) take(f frame) error {
	text, known := c.growing[f.ID]
	switch {
	case f.Taken:
		delete(c.own, f.ID)
	case f.Said:
	case !f.Done:
		c.asked = c.asked || !c.earlier[f.ID]
		c.growing[f.ID] = strings.TrimRight(clean(f.Text), " \n")
	case known:
		c.asked = c.asked && c.earlier[f.ID]
		delete(c.growing, f.ID)
		delete(c.earlier, f.ID)
		_, err := io.WriteString(c.screen, text+"\n")
		return err
	}
	return nil
}
