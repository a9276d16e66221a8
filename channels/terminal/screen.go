package terminal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"gateway/channels/terminal/screen"
)

// A Screen is where a person types and reads, or a pipe in the place of one. Log lines may be
// written to it at any time.
type Screen struct {
	opts  ScreenOptions
	in    *os.File
	tty   *os.File // out as a file
	out   io.Writer
	notes io.Writer     // for what is not the answer
	full  bool          // it is drawn: see package screen
	once  bool          // the input is one message, and the output its answer
	paced bool          // a line is read when the one before it is answered
	lines *bufio.Reader // of a screen that is not drawn

	mu      sync.Mutex
	program *tea.Program // nil unless it runs
}

// ScreenOptions are the optional settings of a [Screen]. The zero value is ready for use.
type ScreenOptions struct {
	// History is the path of the file that keeps what was sent.
	History string

	// Owned says that the gateway ends with the chat, unless the person keeps it running.
	Owned bool

	// Message is what is said, instead of what the input has. The screen shows its answer and ends.
	Message string

	// Lines says that each line of an input that is not typed is a message. Else all of it is one.
	Lines bool
}

// IsTerminal reports whether a person sits at both ends.
func IsTerminal(in, out *os.File) bool {
	return term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// ErrEmpty reports that an input has no message.
var ErrEmpty = errors.New("there is no message: write it behind -m, or into standard input")

// NewScreen returns a Screen on in and out. On a terminal it is drawn, unless the terminal can show
// nothing but lines. An input that is not typed is read to its end.
func NewScreen(in, out *os.File, opts ScreenOptions) (*Screen, error) {
	s := newPipe(in, out)
	s.opts, s.in, s.tty, s.notes = opts, in, out, os.Stderr
	typed := term.IsTerminal(int(in.Fd()))
	switch {
	case opts.Message != "":
		s.once = true
	case IsTerminal(in, out):
		kind := os.Getenv("TERM")
		s.full, s.paced = kind != "dumb" && (kind != "" || !usesTerm), false
	case !typed && !opts.Lines:
		s.once = true
		text, err := io.ReadAll(io.LimitReader(in, maxText+1))
		if err != nil {
			return nil, fmt.Errorf("terminal: standard input: %w", err)
		}
		s.opts.Message = strings.TrimSpace(string(text))
	}
	if s.once && strings.TrimSpace(s.opts.Message) == "" {
		return nil, ErrEmpty
	}
	return s, nil
}

// newPipe returns a Screen of which each line is a message, and that shows answers when they are
// complete.
func newPipe(in io.Reader, out io.Writer) *Screen {
	return &Screen{out: out, notes: io.Discard, paced: true, lines: bufio.NewReader(in)}
}

// Write implements [io.Writer]. What is written ends with a newline.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	program := s.program
	s.mu.Unlock()
	if program == nil {
		return s.out.Write(p)
	}
	program.Send(screen.Log(p))
	return len(p), nil
}

// Drawn reports whether the screen is drawn, so that nothing else may write on its terminal.
func (s *Screen) Drawn() bool { return s.full }

// Greets reports whether a person wants a greeting as the first line.
func (s *Screen) Greets() bool { return !s.full && !s.paced }

// Chat talks to the gateway for the person at s, until the input ends, the person leaves or ctx
// ends. dial connects to the gateway. A screen that is drawn connects again when the connection is
// lost; others end with ErrLost. stays reports that the gateway is to go on without the chat.
func (s *Screen) Chat(
	ctx context.Context, dial func(context.Context) (net.Conn, error),
) (stays bool, err error) {
	conn, err := dial(ctx)
	if errors.Is(err, errNobody) || err != nil && ctx.Err() != nil {
		return false, nil // the gateway stops
	}
	if err != nil {
		return false, err
	}
	if !s.full {
		return false, chatLines(ctx, conn, s)
	}
	return s.draw(ctx, conn, dial)
}

// draw is Chat for a screen that is drawn.
func (s *Screen) draw(
	ctx context.Context, conn net.Conn, dial func(context.Context) (net.Conn, error),
) (stays bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	l := newLink(dial)
	out := &canvas{File: s.tty}
	opts := screen.Options{Gateway: l, History: s.opts.History, Owned: s.opts.Owned}
	if width, height, err := term.GetSize(int(s.tty.Fd())); err == nil {
		opts.Width, opts.Height = width, height
	}
	model, err := screen.New(opts)
	if err != nil {
		fmt.Fprintln(s.out, err)
	}
	program := tea.NewProgram(model, tea.WithInput(s.in), tea.WithOutput(out),
		tea.WithoutSignalHandler())
	out.drawn = func() { go program.Send(screen.Drawn{}) } // Write must not wait for the program
	l.show = program.Send
	s.mu.Lock()
	s.program = program
	s.mu.Unlock()
	wg.Go(func() {
		l.run(ctx, conn)
		program.Send(screen.End{})
	})
	_, err = program.Run()
	s.mu.Lock()
	s.program = nil
	s.mu.Unlock()
	if left := model.Left(); left != "" {
		fmt.Fprintln(s.out, left)
	}
	if err != nil {
		return false, fmt.Errorf("terminal: %w", err)
	}
	return model.Stays(), nil
}

// A canvas is a terminal that tells when the prompt was drawn on it for the first time.
type canvas struct {
	*os.File
	once  sync.Once
	drawn func()
}

// Write implements [io.Writer].
func (c *canvas) Write(p []byte) (int, error) {
	n, err := c.File.Write(p)
	if bytes.Contains(p, []byte(screen.Prompt)) {
		c.once.Do(c.drawn)
	}
	return n, err
}

// readLine returns the next message: a line that is not blank, or all of the input.
func (s *Screen) readLine() (string, error) {
	if s.once {
		return strings.TrimSpace(s.opts.Message), io.EOF
	}
	for {
		line, err := s.lines.ReadString('\n')
		line = strings.TrimSpace(line)
		if line != "" || err != nil {
			return line, err
		}
	}
}

// clean returns text without what could change a terminal: models repeat what strangers wrote.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\t", "    ")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, text)
}
