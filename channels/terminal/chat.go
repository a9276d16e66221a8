package terminal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/channels/terminal/screen"
)

// ErrLost reports that the connection to the gateway was closed.
var ErrLost = errors.New("the gateway has stopped or closed the connection")

// ErrAsks reports that there is no answer yet, because the agent has asked a question.
var ErrAsks = errors.New("the agent waits for your answer or decision: see above, and send it " +
	"with gateway chat -m")

// errUnanswered reports that a person has ended the chat before the answer arrived.
var errUnanswered = errors.New("ended before the answer arrived")

// askAgain is the time between two checks whether the agent has asked something.
const askAgain = 100 * time.Millisecond

// chatLines connects s to the gateway through conn, until the input ends, ctx is done, or the
// connection is lost (ErrLost). It closes conn.
func chatLines(ctx context.Context, conn net.Conn, s *Screen) error {
	// Deferred calls run in reverse order: cancel ends the connection that Wait waits for.
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	frames, lines := make(chan frame), make(chan string)
	c := &conversation{screen: s, link: newLink(nil), own: make(map[string]bool),
		growing: make(map[string]string)}
	c.link.receive = func(f frame) {
		select {
		case frames <- f:
		case <-ctx.Done():
		}
	}
	wg.Go(func() {
		defer close(frames)
		c.link.serve(ctx, conn)
	})
	go readInput(ctx, s, lines) // ends with the input, perhaps after chatLines
	for {
		next := lines
		// A nil channel takes its case out of the select: no line is read before the answer.
		if s.paced && c.waits() {
			next = nil
		}
		select {
		case <-ctx.Done():
			return c.unanswered()
		case <-c.later:
			c.later = nil
			c.link.AskState()
		case f, ok := <-frames:
			if !ok {
				return c.lost(ctx)
			}
			if err := c.receive(f); err != nil {
				return err
			}
		case line, ok := <-next:
			if !ok || !s.once && (line == "/exit" || line == "/quit") {
				return nil
			}
			if len(line) > maxText {
				return fmt.Errorf("terminal: a message of %d bytes is too long; the maximum is %d",
					len(line), maxText)
			}
			c.say(line)
		}
	}
}

// readInput passes on messages from the input, and closes lines at its end. A read can't be
// interrupted, so nobody waits for readInput.
func readInput(ctx context.Context, s *Screen, lines chan<- string) {
	defer close(lines)
	for {
		line, err := s.readLine()
		// JSON would make each byte in another encoding three bytes long, which must count.
		line = strings.ToValidUTF8(line, "\ufffd")
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

// A conversation is the state of the conversation on one screen.
type conversation struct {
	screen  *Screen
	link    *link
	own     map[string]bool   // own unanswered messages by id; true: the gateway has not stored it yet
	asks    bool              // the agent has asked something since
	later   <-chan time.Time  // when to check whether it has; nil: known
	growing map[string]string // texts of incomplete messages, by id
}

// waits reports whether an own message has no answer yet.
func (c *conversation) waits() bool { return len(c.own) > 0 && !c.asks }

// say sends a message of the person.
func (c *conversation) say(line string) {
	id := rand.Text()
	c.own[id], c.asks = true, false
	// Only a single line can be a command. Several lines may be a log or a letter.
	c.link.Send(id, line, strings.Contains(line, "\n"))
}

// lost returns the error for a lost connection.
func (c *conversation) lost(ctx context.Context) error {
	if ctx.Err() != nil {
		return c.unanswered()
	}
	for _, open := range c.own {
		if open {
			return fmt.Errorf("%w; it may not have received your last message", ErrLost)
		}
	}
	return ErrLost
}

// unanswered returns the error when ctx is done.
func (c *conversation) unanswered() error {
	if c.screen.once && len(c.own) > 0 {
		return errUnanswered
	}
	return nil
}

// receive shows the frame f.
func (c *conversation) receive(f frame) error {
	switch {
	case f.State != nil:
		// The question is on its way, and it must be printed before the chat ends.
		if f.State.WillAsk {
			c.later = time.After(askAgain)
		}
		c.asks = f.State.Asks
		if c.asks && c.screen.once {
			return errors.Join(c.print(c.screen.notes, slices.Sorted(maps.Keys(c.growing))), ErrAsks)
		}
	case f.Stored:
		if c.own[f.ID] {
			c.own[f.ID] = false
		}
	case f.Said:
	case f.Done:
		return c.complete(f)
	default:
		text := f.Text
		if len(f.Buttons) > 0 {
			text = screen.WithButtons(text, f.Buttons)
		}
		c.growing[f.ID] = strings.TrimRight(clean(text), " \n")
	}
	return nil
}

// complete prints a complete message. If only one answer is wanted, other messages don't go to
// standard output.
func (c *conversation) complete(f frame) error {
	answered := false
	for _, id := range f.Answers {
		_, ours := c.own[id]
		answered = answered || ours
		delete(c.own, id)
	}
	if !answered && len(c.own) > 0 {
		c.link.AskState() // the message may be a question
	}
	var out io.Writer = c.screen
	if c.screen.once && !answered {
		out = c.screen.notes
	}
	return c.print(out, append(slices.Clone(f.Parts), f.ID))
}

// print prints the texts of messages.
func (c *conversation) print(out io.Writer, ids []string) error {
	for _, id := range ids {
		text, known := c.growing[id]
		delete(c.growing, id)
		if !known {
			continue
		}
		if _, err := io.WriteString(out, text+"\n"); err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
	}
	return nil
}
