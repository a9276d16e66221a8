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

	"github.com/charmbracelet/x/termios"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A typist is a person at a terminal that runs a program.
type typist struct {
	t    testing.TB
	cmd  *exec.Cmd
	pty  *os.File
	done chan struct{} // closed when the program has ended

	mu      sync.Mutex
	vt      *vt
	changed chan struct{} // closed at the next output
}

// sit starts the gateway's program on a terminal of its own.
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
			_, _ = p.pty.WriteString(answer) // an error means that the program has ended
		}
		if err != nil {
			_ = p.cmd.Wait() // ProcessState has the outcome
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

// hides types the answer to a question for a secret. It types only when the terminal does not
// echo any more, because the program turns the echo off after it has printed the question.
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
