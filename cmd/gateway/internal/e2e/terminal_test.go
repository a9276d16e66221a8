//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// The bytes that keys send.
const (
	enterKey  = "\r"
	leftKey   = "\x1b[D"
	upKey     = "\x1b[A"
	backKey   = "\x7f"
	ctrlD     = "\x04"
	pasteKeys = "\x1b[200~"
	pastedEnd = "\x1b[201~"
)

// TestTerminal checks a chat with a new gateway. The panel shows the state, a pasted text is one
// message without commands, wide characters are edited correctly, and /exit ends the program.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]ansi.Method{
		"columns by code point": ansi.WcWidth, "columns by character": ansi.GraphemeWidth,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			p := w.sit(newVT(80, 24, method), nil)
			p.sees("model: fake (fake-model)")
			p.sees("✓ telegram: ")
			p.types(pasteKeys + "one\n/status\nthree" + pastedEnd)
			p.sees("  three")
			p.types(enterKey)
			p.sees("] one\n/status\nthree\n")
			p.types("日本語" + leftKey + "x" + enterKey)
			p.sees("] 日本x語")
			p.types("a👨\u200d👩\u200d👧b" + leftKey + backKey + enterKey)
			p.sees("] ab")
			p.types(upKey + upKey) // recalls an earlier message
			p.sees("› 日本x語\nfake (fake-model)")
			p.types("\x15/exit" + enterKey)
			p.sees("Keep the gateway running for telegram?")
			p.types("n")
			p.ends()
			// This check comes after the end of the program: while the program draws, a text can appear
			// twice or not at all.
			if text := p.text(); strings.Contains(text, "Load: ") || strings.Count(text, "› one") != 1 {
				t.Error("a pasted line ran as a command, or rows are there twice")
			}

			p = w.sit(newVT(80, 24, method), nil) // the next run has the history
			p.sees("✓ telegram: ")
			p.types(upKey)
			p.sees("› /exit")
			p.types("\x15" + ctrlD + "n")
			p.ends()
			info, err := os.Stat(filepath.Join(w.home, "terminal-history"))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the history has mode %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestTerminalOfPerson checks that the panel shows the state of the person's conversation if the
// terminal takes part in it.
func TestTerminalOfPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: quiet + "\n[channels.terminal]\nsession = \"person\""})
	p := w.sit(newVT(80, 24, ansi.WcWidth), nil)
	p.sees("✓ telegram: ")
	p.types("hello" + enterKey)
	p.sees("] hello")
	p.types("/queue collect" + enterKey)
	p.sees("· queue collect")
	p.types("/exit" + enterKey)
	p.sees("Keep the gateway running for telegram?")
	p.types("n")
	p.ends()
}

// TestTerminalApproval checks that the agent asks before it uses a tool, and that a key decides.
func TestTerminalApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders})
	w.config = strings.Replace(w.config, "[agent]", "[tools.list_dir]\nowner = \"ask\"\n[agent]", 1)
	w.configure(quiet)
	w.hide("secret-plan")
	p := w.sit(newVT(100, 40, ansi.GraphemeWidth), nil)
	p.sees("✓ telegram: ")
	p.types("read @sec\t")
	p.sees("› read @secret-plan")
	p.types("\x15")
	p.waits("an empty row", func() bool { return !strings.Contains(p.vt.text(), "secret-plan") })
	p.types(`DO list_dir {"path":"."}` + enterKey)
	p.sees("• Deny: send")
	p.sees("1 Approve · 2 Deny")
	p.sees("waiting for you")
	if strings.Contains(p.text(), "secret-plan") {
		t.Error("the tool ran before it was approved")
	}
	p.types("1" + enterKey)
	p.sees("secret-plan")
	p.types(`DO list_dir {"path":"sub"}` + enterKey)
	// The finished text is printed at once. The row with the buttons comes a little later.
	p.waits("a question", func() bool { return strings.Count(p.vt.text(), "• Deny: send") == 2 })
	p.types("2" + enterKey)
	p.sees("the tools said This was denied")
	p.types(ctrlD + "n")
	p.ends()
}

// hide creates a file in the workspace.
func (w *world) hide(name string) {
	w.t.Helper()
	dir := filepath.Join(w.home, "workspace")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte("dig here"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// TestTerminalLeaves checks that the gateway continues on Telegram after the person has left the
// terminal, with the log level that was set last, and that Ctrl-C ends it.
func TestTerminalLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.sit(newVT(80, 24, ansi.WcWidth), nil)
	p.sees("✓ telegram: ")
	p.types(ctrlD)
	p.sees("Keep the gateway running for telegram?")
	p.types("\x1b")
	p.waits("the chat again", func() bool { return !strings.Contains(p.vt.text(), "Keep the") })
	p.types("hello" + enterKey)
	p.sees("] hello")
	logged := func(text string) {
		p.waits("the log line "+text, func() bool { // the terminal can wrap the line anywhere
			return strings.Contains(withoutSpace(p.vt.text()), withoutSpace(text))
		})
	}
	w.set(`format = "json"`, "format = \"json\"\nlevel = \"debug\"")
	w.configure(quiet)
	logged(reloaded)
	p.types("/exit" + enterKey)
	p.sees("Keep the gateway running for telegram?")
	p.types("y")
	p.sees("The gateway keeps running.")
	w.telegram.Say(7, 7, "are you there?")
	w.await("an answer on Telegram", func() bool { return len(w.texts(7)) == 1 })
	logged("turn begun")
	p.types("\x03")
	p.ends()
}

func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }

// TestTerminalRestart checks that a chat continues after the gateway has restarted, and that
// messages typed meanwhile are answered.
func TestTerminalRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	g := w.start()
	g.ready()
	p := w.sit(newVT(80, 24, ansi.WcWidth), nil, "chat")
	p.sees("✓ telegram: ")
	p.types("/restart" + enterKey)
	p.sees("Connected again.")
	p.sees("I am back: ")
	p.types("hello" + enterKey)
	p.sees("] hello")
	g.kill()
	p.sees("The gateway has stopped.")
	p.types("are you there?" + enterKey)
	p.sees("› are you there?")
	w.start().ready()
	p.sees("] are you there?")
	// The screen may still show the growing answer, which ends with the program. The next answer
	// comes only after the complete answer.
	p.types("and now?" + enterKey)
	p.sees("] and now?")
	p.types("/exit" + enterKey) // no question, because the gateway goes on
	p.ends()
	// This check comes after the end of the program: while the program draws, a text can appear at
	// its old and at its new place.
	if n := strings.Count(p.text(), "] are you there?"); n != 1 {
		t.Errorf("there are %d answers", n)
	}
}

// TestTerminalPlain checks that NO_COLOR removes all colours, and that a terminal without screen
// control gets plain lines.
func TestTerminalPlain(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"colour": nil, "NO_COLOR": {"NO_COLOR=1"}, "dumb": {"TERM=dumb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			p := w.sit(newVT(80, 24, ansi.WcWidth), env)
			if name == "dumb" {
				p.sees("/exit leaves.")
			} else {
				p.sees("✓ telegram: ")
			}
			p.types("some `code`" + enterKey)
			p.sees("code")
			p.waits("an answer", func() bool { return strings.Contains(p.vt.text(), "] some ") })
			p.types("/exit" + enterKey)
			if name != "dumb" {
				p.sees("Keep the gateway running")
				p.types("n")
			}
			p.ends()
			p.mu.Lock()
			defer p.mu.Unlock()
			if got, want := p.vt.colours, name == "colour"; got != want {
				t.Errorf("there are colours: %v, want %v", got, want)
			}
			// The terminal echoes the typed text.
			got := regexp.MustCompile(`\[[^]]*\] `).ReplaceAllString(p.vt.raw.String(), "")
			want := "Talk to gateway. /help shows the commands, /exit leaves.\r\n" +
				"some `code`\r\necho: some `code`\r\n/exit\r\n"
			if name == "dumb" && got != want {
				t.Errorf("a dumb terminal got %q, want %q", got, want)
			}
		})
	}
}
