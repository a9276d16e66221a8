package terminal

import (
	"bufio"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// A Screen is what a person types into and reads from. Log lines may be written to it
// at any time: they don't disturb what is being typed.
type Screen struct {
	typed      bool          // by a person at a terminal, not read from a pipe
	interrupts chan struct{} // Ctrl-C was typed
	restore    func()
	size       func() (width, height int, err error) // nil if not typed

	term  *term.Terminal // nil if not typed
	lines *bufio.Reader  // nil if typed
	out   io.Writer

	mu      sync.Mutex
	partial string // of a line that has no end yet; on the screen only if it is not typed into
}

// IsTerminal reports whether a person sits at both ends.
func IsTerminal(in, out *os.File) bool {
	return term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

const promptText = "> "

// NewScreen returns a Screen on in and out, which Close gives back as they were.
func NewScreen(in, out *os.File) (*Screen, error) {
	s := &Screen{interrupts: make(chan struct{}, 1), restore: func() {}, out: out}
	if !IsTerminal(in, out) {
		s.lines = bufio.NewReader(in)
		return s, nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	s.typed = true
	s.restore = func() { _ = term.Restore(int(in.Fd()), state) } // nothing is left to be done
	s.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{&interruptReader{in, s.interrupts}, out}, promptText)
	s.size = func() (int, int, error) { return term.GetSize(int(out.Fd())) }
	s.out = s.term
	return s, nil
}

// Close gives the terminal back as it was.
func (s *Screen) Close() { s.restore() }

// Write implements [io.Writer]. What is written ends with a newline, so that the prompt
// stays on a line of its own.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

// print shows text that goes on what was printed before. Where a person types, it appears
// row by row, above the prompt.
func (s *Screen) print(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.typed {
		s.partial = text
		_, err := io.WriteString(s.out, text)
		return err
	}
	s.partial += text
	width, height, err := s.size()
	if err != nil || width < 20 {
		width, height = 80, 24
	}
	if err := s.term.SetSize(width, height); err != nil {
		return err
	}
	for {
		row, rest, ok := cutRow(s.partial, width)
		if !ok {
			return nil
		}
		s.partial = rest
		if _, err := io.WriteString(s.out, row+"\n"); err != nil {
			return err
		}
	}
}

// cutRow cuts the first row off text: up to a newline, or the words that fit into width
// columns. ok is false while the row may still grow.
func cutRow(text string, width int) (row, rest string, ok bool) {
	line, rest, ok := strings.Cut(text, "\n")
	columns, space := 0, 0
	for pos, state := 0, -1; pos < len(line); {
		var cluster string
		var w int
		cluster, _, w, state = uniseg.FirstGraphemeClusterInString(line[pos:], state)
		if columns += w; columns > width && pos > 0 {
			if space > 0 {
				return text[:space-1], text[space:], true
			}
			return text[:pos], text[pos:], true
		}
		pos += len(cluster)
		if cluster == " " {
			space = pos
		}
	}
	return line, rest, ok
}

// endLine shows what is printed so far and ends its line.
func (s *Screen) endLine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.partial
	s.partial = ""
	if line == "" || !s.typed && strings.HasSuffix(line, "\n") {
		return
	}
	if !s.typed {
		line = ""
	}
	_, _ = io.WriteString(s.out, line+"\n") // a screen that is gone shows itself at the next read
}

func (s *Screen) readLine() (string, error) {
	if s.term != nil {
		return s.term.ReadLine()
	}
	return s.lines.ReadString('\n')
}

// ctrlC is the byte that a terminal in raw mode sends for it.
const ctrlC = 3

// An interruptReader takes Ctrl-C out of what is typed.
type interruptReader struct {
	in         io.Reader
	interrupts chan<- struct{}
}

func (r *interruptReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	kept := p[:0]
	for _, b := range p[:n] {
		if b != ctrlC {
			kept = append(kept, b)
			continue
		}
		select {
		case r.interrupts <- struct{}{}:
		default:
		}
	}
	return len(kept), err
}
