package screen

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
)

var update = flag.Bool("update", false, "write the golden files")

// A screenFixture is a Model under test. The test plays the gateway.
type screenFixture struct {
	*Model
	t       *testing.T
	said    []string // the messages that the gateway got; literal ones are quoted
	ids     []string
	asked   []string // prefixes of files that were asked for
	printed []string // printed rows
	now     time.Time
}

// Send implements [Gateway].
func (d *screenFixture) Send(id, text string, literal bool) {
	if literal {
		text = fmt.Sprintf("%q", text)
	}
	d.said, d.ids = append(d.said, text), append(d.ids, id)
}

// AskState implements [Gateway].
func (d *screenFixture) AskState() {}

// AskFiles implements [Gateway].
func (d *screenFixture) AskFiles(prefix string) { d.asked = append(d.asked, prefix) }

func sit(t *testing.T, width, height int, opts Options) *screenFixture {
	t.Helper()
	d := &screenFixture{t: t, now: time.Unix(0, 0)}
	opts.Gateway, opts.Now = d, func() time.Time { return d.now }
	var err error
	if d.Model, err = New(opts); err != nil {
		t.Fatal(err)
	}
	d.emit = func(text string) tea.Cmd {
		d.printed = append(d.printed, strings.Split(text, "\n")...)
		return nil
	}
	d.gets(Drawn{}, tea.WindowSizeMsg{Width: width, Height: height},
		tea.ModeReportMsg{Mode: ansi.ModeUnicodeCore, Value: ansi.ModeReset})
	return d
}

// gets delivers messages to the model, and runs the prints that follow.
func (d *screenFixture) gets(msgs ...tea.Msg) {
	for _, msg := range msgs {
		d.Update(msg)
		for d.printing {
			d.Update(printed{})
		}
	}
}

var keys = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab},
	"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "left": {Code: tea.KeyLeft},
	"right": {Code: tea.KeyRight}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd},
	"backspace": {Code: tea.KeyBackspace}, "delete": {Code: tea.KeyDelete},
	"alt+enter": {Code: tea.KeyEnter, Mod: tea.ModAlt},
	"ctrl+c":    {Code: 'c', Mod: tea.ModCtrl}, "ctrl+d": {Code: 'd', Mod: tea.ModCtrl},
	"ctrl+r": {Code: 'r', Mod: tea.ModCtrl}, "ctrl+w": {Code: 'w', Mod: tea.ModCtrl},
	"ctrl+k": {Code: 'k', Mod: tea.ModCtrl}, "ctrl+u": {Code: 'u', Mod: tea.ModCtrl},
}

// presses presses keys by their names.
func (d *screenFixture) presses(names ...string) {
	d.t.Helper()
	for _, name := range names {
		key, ok := keys[name]
		if !ok {
			d.t.Fatalf("the test knows no key %q", name)
		}
		d.gets(key)
	}
}

// types types text, one code point at a time, as a terminal sends it.
func (d *screenFixture) types(text string) {
	for _, r := range text {
		d.gets(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
}

// enters types a text and sends it.
func (d *screenFixture) enters(text string) {
	d.types(text)
	d.presses("enter")
}

// answers makes the gateway answer all messages that it got.
func (d *screenFixture) answers(id, text string, buttons ...Button) {
	d.gets(Message{ID: id, Text: text, Buttons: buttons}, d.done(id))
}

// done returns the end of the message id, which answers all messages that the gateway got.
func (d *screenFixture) done(id string) Message {
	return Message{ID: id, Done: true, Answers: d.ids}
}

func (d *screenFixture) wantSaid(want ...string) {
	d.t.Helper()
	if !slices.Equal(d.said, want) {
		d.t.Errorf("the gateway heard %q, want %q", d.said, want)
	}
}

// looks returns the printed rows, and then the rows that change, without styles.
func (d *screenFixture) looks() (rows []string) {
	v := d.View()
	rows = append(slices.Clone(d.printed), strings.Split(v.Content, "\n")...)
	for i, r := range rows {
		rows[i] = strings.TrimRight(ansi.Strip(r), " ")
	}
	return rows
}

// wantPrinted checks the printed rows, without blank ones.
func (d *screenFixture) wantPrinted(want ...string) {
	d.t.Helper()
	var got []string
	for _, r := range d.printed {
		if r = strings.TrimRight(ansi.Strip(r), " "); r != "" {
			got = append(got, r)
		}
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("printed\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// wantTyped checks the text in the editor.
func (d *screenFixture) wantTyped(want string) {
	d.t.Helper()
	if got := d.editor.value(); got != want {
		d.t.Errorf("the editor has %q, want %q", got, want)
	}
}

// wantShown checks that a row has a text.
func (d *screenFixture) wantShown(text string) {
	d.t.Helper()
	if all := strings.Join(d.looks(), "\n"); !strings.Contains(all, text) {
		d.t.Errorf("the screen does not show %q:\n%s", text, all)
	}
}

// golden compares the screen with a file.
func (d *screenFixture) golden(name string) {
	d.t.Helper()
	v := d.View()
	text := strings.Join(d.looks(), "\n") + "\n"
	if c := v.Cursor; c != nil {
		text += fmt.Sprintf("-- cursor in row %d, column %d of the rows that change\n", c.Y+1, c.X+1)
	}
	for _, row := range append(slices.Clone(d.printed), strings.Split(v.Content, "\n")...) {
		if w := ansi.StringWidth(row); w > d.width {
			d.t.Errorf("%s: a row has %d columns of %d: %q", name, w, d.width, row)
		}
	}
	compare(d.t, name, text)
}

func compare(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := text; got != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("%s: the screen looks like\n%s\nwant\n%s", name, got, want)
	}
}

func (d *screenFixture) wantEnd(want bool) {
	d.t.Helper()
	if d.end.wanted != want {
		d.t.Errorf("the chat ends: %v, want %v", d.end.wanted, want)
	}
}

// Ctrl-C stops a running answer and keeps the typed text. Without an answer it deletes the text,
// and without a text it ends the chat.
func TestCtrlC(t *testing.T) {
	d := sit(t, 40, 20, Options{})
	d.enters("hello")
	d.presses("ctrl+c")
	d.wantSaid("hello", "/stop")
	d.answers("a", "Stopped.")
	d.enters("next")
	d.gets(Message{ID: "b", Text: "It gro"})
	d.types("typed")
	d.presses("ctrl+c") // while the answer grows
	d.wantSaid("hello", "/stop", "next", "/stop")
	d.wantTyped("typed")
	d.answers("c", "Stopped.")
	d.gets(Message{ID: "b", Text: "It gro … (stopped)"}, Message{ID: "b", Done: true})
	d.presses("ctrl+c")
	d.wantTyped("")
	d.wantEnd(false)
	d.enters("other")
	d.answers("d", "ok")
	d.presses("ctrl+c")
	d.wantEnd(true)
	d.wantPrinted("› hello", "› /stop", "Stopped.", "› next", "› /stop", "Stopped.",
		"It gro … (stopped)", "› other", "ok")

	d = sit(t, 40, 20, Options{}) // this also stops an answer to somebody at another screen
	d.gets(Message{ID: "a", Text: "It gro"})
	d.presses("ctrl+c")
	d.wantSaid("/stop")
}

func TestLeave(t *testing.T) {
	for _, text := range []string{"/exit", "/quit", "exit", " quit "} {
		d := sit(t, 40, 20, Options{})
		d.enters(text)
		d.wantEnd(true)
		d.wantSaid()
	}
	d := sit(t, 40, 20, Options{})
	d.enters("hello")
	d.gets(Message{ID: "a", Text: "It gro"})
	d.types("x")
	d.presses("home", "ctrl+d") // deletes a character instead of leaving
	d.wantEnd(false)
	d.presses("ctrl+d")
	d.wantEnd(true)
}

// The screen shows a conversation in which an answer grows while others speak.
func TestConversation(t *testing.T) {
	d := sit(t, 40, 20, Options{})
	d.enters("hello")
	d.gets(Message{ID: "a", Text: "_reads_"})
	d.wantShown("reads · 0s")
	d.gets(Message{ID: "a", Text: "I am\n\n_counts_"})
	d.wantShown("counts · 0s")
	d.wantShown("I am")
	d.enters("and") // while the first answer grows
	d.gets(Message{ID: "a", Text: "I am the gateway.\n"}, Message{ID: "a", Done: true,
		Answers: d.ids[:1]})
	d.gets(OtherScreenMessage("from\x1b[2J elsewhere"))
	d.answers("b", "second\n\n")
	d.enters("third")
	d.answers("c", "3\x1b[2J")
	d.wantPrinted("› hello", "› and", "I am the gateway.", "› from[2J elsewhere", "second", "› third",
		"3[2J")
}

// A command is answered while another answer grows. That answer is complete later.
func TestCommandBetween(t *testing.T) {
	d := sit(t, 40, 20, Options{})
	d.enters("hello")
	d.gets(Message{ID: "a", Text: "It gro"})
	d.enters("/status")
	d.gets(Message{ID: "b", Text: "fine"}, Message{ID: "b", Done: true, Answers: d.ids[1:]})
	d.gets(Message{ID: "a", Text: "It grows."}, Message{ID: "a", Done: true})
	d.wantPrinted("› hello", "› /status", "fine", "It grows.")
}

// An answer was sent, but the gateway ended before it reported the answer as complete. The
// screen waits for the answer until the next gateway is idle.
func TestAnswerLostWithTheGateway(t *testing.T) {
	d := sit(t, 80, 24, Options{})
	d.gets(fullState())
	d.enters("hello")
	d.gets(Message{ID: "a", Text: "Good morning."}, Lost{}, Joined{})
	d.enters("and the weather?")
	state := fullState()
	d.gets(state)
	if len(d.talk.own) != 2 {
		t.Errorf("while the gateway works %v is open, want both messages", d.talk.own)
	}
	state.Idle = true
	d.gets(state)
	if len(d.talk.own) != 1 || d.talk.own[d.ids[1]] == "" {
		t.Errorf("when it is idle %v is open, want what was said since", d.talk.own)
	}
}

// Log lines are printed above the answer that grows.
func TestLog(t *testing.T) {
	d := sit(t, 40, 20, Options{})
	d.gets(Message{ID: "a", Text: "It gro"}, Log("12:00 WRN one\n"), Log("12:00 WRN two\n"))
	d.wantPrinted("12:00 WRN one", "12:00 WRN two")
	d.wantShown("It gro")
}

// A paste is one message, however many lines it has. None of the lines is a command.
func TestPaste(t *testing.T) {
	d := sit(t, 40, 20, Options{})
	d.gets(tea.PasteMsg{Content: "one\r\n/status\nthree\r"})
	d.wantSaid()
	d.presses("enter")
	d.wantSaid(`"one\n/status\nthree"`)
	d.gets(tea.PasteMsg{Content: "/halt\nmore"})
	d.presses("enter")
	d.wantSaid(`"one\n/status\nthree"`, `"/halt\nmore"`)
	d.gets(tea.PasteMsg{Content: "/exit"}) // it isn't a command of the screen either
	d.presses("enter")
	d.wantEnd(false)
	d.wantSaid(`"one\n/status\nthree"`, `"/halt\nmore"`, `"/exit"`)
}

// A typed text that begins with "/" is a command. A pasted one becomes a command with Tab.
func TestPastedCommand(t *testing.T) {
	d := sit(t, 60, 20, Options{})
	d.types("/pair ")
	d.gets(tea.PasteMsg{Content: "ABCD"})
	d.presses("enter")
	d.wantSaid("/pair ABCD")
	d.gets(tea.PasteMsg{Content: "/pair EFGH"})
	d.wantShown("Tab makes it a command")
	d.presses("tab", "enter")
	d.wantSaid("/pair ABCD", "/pair EFGH")
}

// A backslash at the end of a line continues the message on the next line. So does Alt-Enter.
func TestLines(t *testing.T) {
	d := sit(t, 40, 20, Options{})
	d.types(`one\`)
	d.presses("enter")
	d.types("two")
	d.presses("alt+enter")
	d.types("three")
	d.wantSaid()
	d.presses("enter")
	d.wantSaid("one\ntwo\nthree")
}

// With NO_COLOR, the screen has no colours, not even in printed text.
func TestNoColor(t *testing.T) {
	for profile, want := range map[colorprofile.Profile]bool{
		colorprofile.ANSI: true, colorprofile.ASCII: false,
	} {
		d := sit(t, 40, 20, Options{})
		d.gets(tea.ColorProfileMsg{Profile: profile})
		d.enters("hello")
		d.answers("a", "some `code`")
		if got := strings.Contains(strings.Join(d.printed, ""), "\x1b[36m"); got != want {
			t.Errorf("%v: printed %q", profile, d.printed)
		}
	}
}

// The agent asks for an approval, and the person gives it by a digit. The buttons stay until
// then, also if the approval is given at another screen. The instructions for the buttons stay
// on the screen.
func TestApproval(t *testing.T) {
	buttons := []Button{{Label: "Approve", Text: "/approve AB"}, {Label: "Deny", Text: "/deny AB"}}
	d := sit(t, 60, 20, Options{})
	d.enters("run it")
	d.gets(Message{ID: "a", Text: "I want to run `rm x`.", Buttons: buttons},
		Message{ID: "a", Done: true}, &State{Asks: true})
	d.wantShown("1 Approve · 2 Deny · digit and Enter")
	d.wantShown("waiting for you")
	d.wantShown("• Approve: send /approve AB")
	d.enters("why?")
	d.wantShown("1 Approve · 2 Deny")
	d.types("2")
	d.presses("backspace", "backspace")
	d.enters("1")
	d.wantSaid("run it", "why?", "/approve AB")
	d.answers("b", "Done.")
	if all := strings.Join(d.looks(), "\n"); strings.Contains(all, "digit and Enter") {
		t.Errorf("the buttons are still there:\n%s", all)
	}
	d.enters("1") // now it is a message again
	d.wantSaid("run it", "why?", "/approve AB", "1")

	d.gets(Message{ID: "c", Text: "And?", Buttons: buttons}, Message{ID: "c", Done: true})
	d.gets(OtherScreenMessage("/deny AB"))
	d.gets(tea.PasteMsg{Content: "1"})
	d.presses("enter")
	d.wantSaid("run it", "why?", "/approve AB", "1", `"1"`)
}

// Buttons that need not be pressed disappear with the next message.
func TestButtons(t *testing.T) {
	d := sit(t, 60, 20, Options{})
	d.enters("/queue")
	d.answers("a", "Change it:", Button{Label: "Steer", Text: "/queue steer"})
	d.wantShown("1 Steer · digit and Enter")
	d.enters("hello")
	d.enters("1")
	d.wantSaid("/queue", "hello", "1")
}
