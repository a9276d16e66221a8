package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"gateway/channels/markup"
)

// A Screen is what a person types into and reads from. Log lines may be written to it
// at any time: they disturb neither what is being typed nor an answer that grows.
type Screen struct {
	typed   bool   // by a person at a terminal, not read from a pipe
	restore func() // gives the terminal back
	size    func() (width, height int, err error)
	render  func(markdown string, width int) string // nil: Markdown is shown as it is

	// interrupts receives when Ctrl-C was typed: true if that took back what was typed of a line.
	interrupts chan bool

	term  *term.Terminal // nil if not typed
	lines *bufio.Reader  // nil if typed
	raw   io.Writer

	mu   sync.Mutex
	out  io.Writer // term, or raw if there is no prompt
	text string    // of the message that grows, as it is on the screen
	base int       // how much of text stands in rows that are not changed any more
	rows []row     // show the rest, directly above the prompt
	wide int       // columns that the rows were laid out for
}

// A row is one of a text on the screen.
type row struct {
	text string
	end  int // where it ends in the message, with the space or newline behind it
}

// IsTerminal reports whether a person sits at both ends.
func IsTerminal(in, out *os.File) bool {
	return term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

const promptText = "> "

// NewScreen returns a Screen on in and out, which Close gives back as they were.
func NewScreen(in, out *os.File) (*Screen, error) {
	if !IsTerminal(in, out) {
		return newPipe(in, out), nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	s := newTyped(in, out, func() (int, int, error) { return term.GetSize(int(out.Fd())) })
	s.render = markup.ANSI
	s.restore = func() { _ = term.Restore(int(in.Fd()), state) } // nothing is left to be done
	return s, nil
}

// newPipe returns a Screen of which each line is a message, and that shows answers when they are
// complete.
func newPipe(in io.Reader, out io.Writer) *Screen {
	return &Screen{restore: func() {}, lines: bufio.NewReader(in), raw: out, out: out}
}

// newTyped returns a Screen that a person types into.
func newTyped(in io.Reader, out io.Writer, size func() (int, int, error)) *Screen {
	s := &Screen{
		typed: true, interrupts: make(chan bool, 1), restore: func() {}, size: size, raw: out}
	s.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keyReader{in, s}, out}, promptText)
	s.term.AutoCompleteCallback = s.key
	s.out = s.term
	return s
}

// Close gives the terminal back as it was. It can still be written to. Closing it again does
// nothing.
func (s *Screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == s.raw {
		return
	}
	s.out = s.raw
	s.settle(len(s.text))
	_, _ = io.WriteString(s.raw, "\r\n") // behind the prompt; who would read an error
	s.restore()
}

// Write implements [io.Writer]. What is written ends with a newline, so that the prompt
// stays on a line of its own.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.rows) - 1
	if last < 0 || s.rows[last].end < len(s.text) || strings.HasSuffix(s.text, "\n") {
		s.settle(len(s.text))
		return s.out.Write(p)
	}
	// The last row may still grow: it moves below.
	open := s.rows[last]
	start := s.base
	if last > 0 {
		start = s.rows[last-1].end
	}
	s.settle(start)
	s.rows = []row{open}
	if _, err := io.WriteString(s.out, up(1)+string(p)+open.text+"\n"); err != nil {
		return 0, err
	}
	return len(p), nil
}

// up returns what moves the cursor up by n rows, or to the beginning of its row, and clears the
// screen from there.
func up(n int) string {
	if n == 0 {
		return "\r\x1b[J"
	}
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", n)
}

// settle leaves on the screen what is there: what differs from the first n bytes of the message
// is printed below.
func (s *Screen) settle(n int) { s.base, s.rows = n, nil }

// begin makes show go on with a message of which text is on the screen already, somewhere above.
func (s *Screen) begin(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, _ := s.measure()
	s.text = s.rendered(text, width)
	s.settle(len(s.text))
}

// measure returns the size of the screen.
func (s *Screen) measure() (width, height int) {
	width, height, err := s.size()
	if err != nil || width < 2 || height < 2 {
		return 80, 24
	}
	return width, height
}

// rendered returns what is shown of Markdown.
func (s *Screen) rendered(markdown string, width int) string {
	if s.render == nil {
		return markdown
	}
	return strings.TrimRight(s.render(markdown, width), "\n")
}

// end leaves the message as it is: what comes now comes below.
func (s *Screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(len(s.text))
}

// show makes the screen show the newest text of a message that grows. What has become another
// is replaced, or, if it is too far up, printed anew from there.
func (s *Screen) show(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height := s.measure()
	if err := s.term.SetSize(width, height); err != nil {
		return err
	}
	text = s.rendered(text, width)
	if width != s.wide { // nobody knows how the terminal has wrapped what was there
		s.settle(len(s.text))
	}
	s.wide = width
	same := common(s.text, text)
	if same < s.base {
		s.settle(same)
	}
	rows := layout(text, s.base, width)
	first := 0
	for first < len(rows) && first < len(s.rows) && rows[first].text == s.rows[first].text {
		first++
	}
	above := len(s.rows) - first
	if above > height/2 {
		s.settle(same)
		rows, first, above = layout(text, same, width), 0, 0
	}
	s.text, s.rows = text, rows
	if first < len(rows) || above > 0 {
		var b strings.Builder
		b.WriteString(up(above))
		for _, r := range rows[first:] {
			b.WriteString(r.text + "\n")
		}
		if _, err := io.WriteString(s.out, b.String()); err != nil {
			return err
		}
	}
	if old := len(rows) - height; old > 0 { // out of reach: it need not be laid out again
		s.base, s.rows = rows[old-1].end, rows[old:]
	}
	return nil
}

// readLine returns the next line that is not blank.
func (s *Screen) readLine() (string, error) {
	for {
		var line string
		var err error
		if s.typed {
			line, err = s.term.ReadLine()
			if errors.Is(err, term.ErrPasteIndicator) {
				err = nil
			}
		} else {
			line, err = s.lines.ReadString('\n')
		}
		line = strings.TrimSpace(line)
		if line != "" || err != nil {
			return line, err
		}
	}
}

// What a terminal in raw mode sends.
const (
	ctrlC = 3
	ctrlG = 7 // means nothing to x/term, unlike Ctrl-C, which ends its input
	enter = '\r'
)

// A keyReader reads what is typed on a screen.
type keyReader struct {
	in io.Reader
	s  *Screen
}

func (r keyReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	for i, b := range p[:n] {
		switch b {
		case ctrlC:
			p[i] = ctrlG
		case enter: // what is typed stays, so that the rows above can't be reached any more
			r.s.end()
		}
	}
	return n, err
}

// key is called with each key that x/term knows no meaning of.
func (s *Screen) key(line string, _ int, key rune) (newLine string, newPos int, ok bool) {
	if key != ctrlG {
		return "", 0, false
	}
	select {
	case s.interrupts <- line != "":
	default:
	}
	return "", 0, true
}
