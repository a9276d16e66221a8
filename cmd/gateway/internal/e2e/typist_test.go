//go:build unix

package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/termios"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A vt is a terminal in memory: rows of cells. The last rows are on the screen.
type vt struct {
	width, height int
	method        ansi.Method
	rows          [][]string
	first         int // of rows that is on the screen
	x, y          int // x is width after a character in the last column; y counts from rows[0]
	state         byte
	parser        *ansi.Parser
	rest          []byte // a sequence that is not complete
	colours       bool   // something had one
	raw           strings.Builder
	strange       string // the first sequence that is not known
}

func newVT(width, height int, method ansi.Method) *vt {
	return &vt{width: width, height: height, method: method, rows: [][]string{nil},
		parser: ansi.NewParser()}
}

// write processes the output of a program and returns the terminal's response.
func (v *vt) write(p []byte) (answer string) {
	v.raw.Write(p)
	v.rest = append(v.rest, p...)
	for len(v.rest) > 0 {
		seq, width, n, state := v.method.DecodeSequence(v.rest, v.state, v.parser)
		if state != ansi.NormalState || n == len(v.rest) && n < 32 && seq[0] >= 0x80 {
			if state == ansi.NormalState && v.whole(seq) {
				v.put(string(seq), width)
				v.rest = nil
				continue
			}
			return answer // the rest is still to come
		}
		v.rest = v.rest[n:]
		switch {
		case width > 0:
			v.put(string(seq), width)
		case seq[0] == '\x1b' && len(seq) > 1 && seq[1] == '[':
			answer += v.control(string(seq))
		case string(seq) == "\x1bM":
			v.y = max(v.y-1, v.first)
		case seq[0] == '\x1b':
			v.strange = string(seq)
		default:
			v.move(seq[0])
		}
	}
	return answer
}

// whole reports whether seq is a complete character that can be shown.
func (v *vt) whole(seq []byte) bool {
	return !strings.ContainsRune(string(seq), '\ufffd') && v.method.StringWidth(string(seq)) > 0
}

func (v *vt) down() {
	if v.y++; v.y == len(v.rows) {
		v.rows = append(v.rows, nil)
	}
	v.first = max(v.first, v.y+1-v.height)
}

func (v *vt) move(c byte) {
	switch c {
	case '\r':
		v.x = 0
	case '\n':
		v.down()
	case '\b':
		v.x = max(min(v.x, v.width-1)-1, 0)
	case '\t':
		v.x = min((v.x/8+1)*8, v.width-1)
	}
}

func (v *vt) put(cluster string, width int) {
	if v.x+width > v.width {
		v.x = 0
		v.down()
	}
	row := v.row(v.x + width)
	row[v.x] = cluster
	for i := 1; i < width; i++ {
		row[v.x+i] = ""
	}
	v.x += width
}

// row returns the row of the cursor, extended to at least width cells.
func (v *vt) row(width int) []string {
	for len(v.rows[v.y]) < width {
		v.rows[v.y] = append(v.rows[v.y], " ")
	}
	return v.rows[v.y]
}

// control executes a control sequence.
func (v *vt) control(seq string) (answer string) {
	cmd := ansi.Cmd(v.parser.Command())
	n, _ := v.parser.Param(0, 1)
	n = max(n, 1)
	erase, _ := v.parser.Param(0, 0)
	at := min(v.x, v.width-1)
	switch final := cmd.Final(); {
	case cmd.Prefix() == '?' && final == 'p' && erase == 2027 && v.method == ansi.GraphemeWidth:
		return "\x1b[?2027;2$y"
	case cmd.Prefix() != 0, cmd.Intermediate() != 0: // modes and questions
	case final == 'A':
		v.y = max(v.y-n, v.first)
	case final == 'B':
		v.y = min(v.y+n, v.first+v.height-1)
		for v.y >= len(v.rows) {
			v.rows = append(v.rows, nil)
		}
	case final == 'C':
		v.x = min(at+n, v.width-1)
	case final == 'D':
		v.x = max(at-n, 0)
	case final == 'G':
		v.x = min(n, v.width) - 1
	case final == 'K' && erase == 0:
		v.rows[v.y] = v.row(at)[:at]
	case final == 'K' && erase == 1:
		blank(v.row(at + 1)[:at+1])
	case final == 'J' && erase == 0:
		v.rows[v.y] = v.row(at)[:at]
		v.rows = v.rows[:v.y+1]
	case final == 'X':
		blank(v.row(at + n)[at : at+n])
	case final == 'P':
		row := v.row(at + n)
		v.rows[v.y] = append(row[:at:at], row[at+n:]...)
	case final == '@':
		row := v.row(at)
		blanks := make([]string, n)
		blank(blanks)
		v.rows[v.y] = append(append(row[:at:at], blanks...), row[at:]...)
	case final == 'b':
		last := v.row(at)[v.x-1]
		for range n {
			v.put(last, v.method.StringWidth(last))
		}
	case final == 'L':
		v.insertRows(n)
	case final == 'M':
		end := min(v.y+n, len(v.rows))
		v.rows = append(v.rows[:v.y:v.y], v.rows[end:]...)
		if v.y == len(v.rows) {
			v.rows = append(v.rows, nil)
		}
	case final == 'm':
		v.colours = v.colours || strings.Contains(seq, "3") && seq != "\x1b[39m"
	case strings.ContainsRune("hlWquc", rune(final)):
	default:
		if v.strange == "" {
			v.strange = seq
		}
	}
	return ""
}

// insertRows inserts n rows. Rows below the screen are lost.
func (v *vt) insertRows(n int) {
	rows := append(append(v.rows[:v.y:v.y], make([][]string, n)...), v.rows[v.y:]...)
	v.rows = rows[:min(len(rows), v.first+v.height)]
}

func blank(cells []string) {
	for i := range cells {
		cells[i] = " "
	}
}

// text returns all rows, including those that have scrolled away.
func (v *vt) text() string {
	var b strings.Builder
	for _, row := range v.rows {
		b.WriteString(strings.TrimRight(strings.Join(row, ""), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// A typist is a person at a terminal, with a program.
type typist struct {
	t    testing.TB
	cmd  *exec.Cmd
	pty  *os.File
	done chan struct{} // closed when the program has ended

	mu      sync.Mutex
	vt      *vt
	changed chan struct{} // closed at the next output
}

// sit starts the gateway's program on its own terminal.
func (w *world) sit(screen *vt, env []string, args ...string) *typist {
	w.t.Helper()
	path, err := buildBinary()
	if err != nil {
		w.t.Fatal(err)
	}
	p := &typist{t: w.t, cmd: exec.Command(path, args...), vt: screen,
		done: make(chan struct{}), changed: make(chan struct{})}
	p.cmd.Env = append(append(w.environ(), "TERM=xterm-256color"), env...)
	p.pty, err = pty.StartWithSize(p.cmd,
		&pty.Winsize{Cols: uint16(screen.width), Rows: uint16(screen.height)})
	if err != nil {
		w.t.Fatal(err)
	}
	go p.read()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended already
		<-p.done
		p.pty.Close()
		if w.t.Failed() {
			w.t.Logf("the screen:\n%s", p.text())
		}
	})
	return p
}

func (p *typist) read() {
	defer close(p.done)
	buf := make([]byte, 1<<12)
	for {
		n, err := p.pty.Read(buf)
		p.mu.Lock()
		answer := p.vt.write(buf[:n])
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if answer != "" {
			_, _ = p.pty.WriteString(answer) // a program that has ended needs none
		}
		if err != nil {
			_ = p.cmd.Wait() // how it ended is in ProcessState
			return
		}
	}
}

func (p *typist) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vt.text()
}

// types sends keys.
func (p *typist) types(keys string) {
	p.t.Helper()
	if _, err := p.pty.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until the terminal shows a text.
func (p *typist) sees(text string) {
	p.t.Helper()
	p.waits("the text "+text, func() bool { return strings.Contains(p.vt.text(), text) })
}

// hides answers a question whose answer is not shown. It types only when the terminal does not echo
// any more, because the program switches the echo off after it has printed the question.
func (p *typist) hides(question, keys string) {
	p.t.Helper()
	p.sees(question)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		mode, err := termios.GetTermios(int(p.pty.Fd()))
		switch {
		case err != nil:
			p.t.Fatalf("the mode of the terminal: %v", err)
		case mode.Lflag&unix.ECHO == 0:
			p.types(keys + enterKey)
			return
		case time.Now().After(deadline):
			p.t.Fatalf("the answer to %q is shown", question)
		}
	}
}

// waits waits until cond is true. It checks cond after each output.
func (p *typist) waits(what string, cond func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		p.mu.Lock()
		changed, ok, strange := p.changed, cond(), p.vt.strange
		p.mu.Unlock()
		switch {
		case strange != "":
			p.t.Fatalf("the terminal does not know %q", strange)
		case ok:
			return
		}
		select {
		case <-changed:
		case <-p.done:
			if p.mu.Lock(); !cond() {
				p.mu.Unlock()
				p.t.Fatalf("the program has ended before %s", what)
			}
			p.mu.Unlock()
			return
		case <-ctx.Done():
			p.t.Fatalf("there is not %s", what)
		}
	}
}

// ends waits for the end of the program.
func (p *typist) ends() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.t.Fatal("the program has not ended")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("the program has ended with code %d", code)
	}
}
