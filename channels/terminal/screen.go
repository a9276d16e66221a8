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

// A Screen is a terminal on which a person types and reads, or a pipe instead of one. Log lines may
// be written to it at any time.
type Screen struct {
	opts  ScreenOptions
	in    *os.File
	tty   *os.File // out as a file
	out   io.Writer
	notes io.Writer     // for everything but the answer
	full  bool          // the screen is drawn: see package screen
	once  bool          // the input is one message, and the output its answer
	paced bool          // read a line only after the previous one is answered
	lines *bufio.Reader // for a screen that is not drawn

	mu      sync.Mutex
	program *tea.Program // nil unless it is running
}

// ScreenOptions are the optional settings of a [Screen]. The zero value is ready for use.
type ScreenOptions struct {
	// History is the path of the file that stores sent messages.
	History string

	// Owned says that the gateway ends with the chat unless the person keeps it running.
	Owned bool

	// Message is sent instead of the input. The screen shows its answer and ends.
	Message string

	// Lines says that each line of an input that is not a terminal is a message. Otherwise the
	// whole input is one message.
	Lines bool
}

// IsTerminal reports whether both files are terminals.
func IsTerminal(in, out *os.File) bool {
	return term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// ErrEmpty reports an empty input.
var ErrEmpty = errors.New("there is no message: write it after -m, or to standard input")

// NewScreen returns a Screen on in and out. On a terminal it is drawn, unless the terminal can show
// only lines. It reads other inputs to their end.
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
		// One byte more than allowed is read, so that a longer text is refused and not cut.
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

// newPipe returns a Screen that treats each line as a message and shows complete answers.
func newPipe(in io.Reader, out io.Writer) *Screen {
	return &Screen{out: out, notes: io.Discard, paced: true, lines: bufio.NewReader(in)}
}

// SetOwned changes [ScreenOptions.Owned]. Call it before Chat.
func (s *Screen) SetOwned(owned bool) { s.opts.Owned = owned }

// Write implements [io.Writer]. Each write must end with a newline.
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

// Drawn reports whether the screen is drawn. Then nothing else may write to its terminal.
func (s *Screen) Drawn() bool { return s.full }

// Greets reports whether to print a greeting for a person first.
func (s *Screen) Greets() bool { return !s.full && !s.paced }

// Chat connects the person at s to the gateway until the input ends, the person leaves or ctx is
// done. dial connects to the gateway. A drawn screen reconnects when the connection is lost; others
// return ErrLost. stays reports that the gateway should continue without the chat.
func (s *Screen) Chat(
	ctx context.Context, dial func(context.Context) (net.Conn, error),
) (stays bool, err error) {
	conn, err := dial(ctx)
	if errors.Is(err, errNotAttached) || err != nil && ctx.Err() != nil {
		return false, nil // the gateway is stopping
	}
	if err != nil {
		return false, err
	}
	if !s.full {
		return false, chatLines(ctx, conn, s)
	}
	return s.draw(ctx, conn, dial)
}

// draw is Chat for a drawn screen.
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
	// Without a size the screen uses its default, until Bubble Tea reports one.
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

// A canvas is a terminal that reports when the prompt was drawn for the first time.
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

// readLine returns the next message: a non-blank line, or the whole input.
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

// clean removes what could change a terminal from text, because models repeat untrusted text.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\t", "    ")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, text)
}
