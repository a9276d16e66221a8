package terminal

import (
	"bufio"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// A Screen is what a person types into and reads from. Log lines may be written to it
// at any time: they don't disturb what is being typed.
type Screen struct {
	typed      bool          // by a person at a terminal, not read from a pipe
	interrupts chan struct{} // Ctrl-C was typed
	restore    func()

	term  *term.Terminal // nil if not typed
	lines *bufio.Reader  // nil if typed
	out   io.Writer

	mu      sync.Mutex
	midLine bool // the cursor is not at the beginning of a line
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
	if width, height, err := term.GetSize(int(out.Fd())); err == nil {
		_ = s.term.SetSize(width, height) // the size is a hint
	}
	s.out = s.term
	return s, nil
}

// Close gives the terminal back as it was.
func (s *Screen) Close() { s.restore() }

// Write implements [io.Writer].
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) > 0 {
		s.midLine = p[len(p)-1] != '\n'
	}
	return s.out.Write(p)
}

// endLine ends a line that was begun.
func (s *Screen) endLine() {
	s.mu.Lock()
	midLine := s.midLine
	s.mu.Unlock()
	if midLine {
		_, _ = s.Write([]byte("\n")) // a screen that is gone shows itself at the next read
	}
}

// hidePrompt keeps the prompt out of an answer.
func (s *Screen) hidePrompt() {
	if s.term != nil {
		s.term.SetPrompt("")
	}
}

// prompt asks for the next line, below the answer.
func (s *Screen) prompt() {
	s.endLine()
	if s.term != nil {
		s.term.SetPrompt(promptText)
		_, _ = s.term.Write([]byte("\r")) // draws the prompt
	}
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
