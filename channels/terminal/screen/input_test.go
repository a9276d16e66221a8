package screen

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// Tab completes a unique name. Otherwise it completes the common beginning of all choices, and
// then shows one choice after the other.
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		typed string
		tabs  int
		want  string
	}{
		{"/he", 1, "/help "},
		{"/s", 1, "/st"},
		{"/s", 2, "/status"},
		{"/s", 3, "/stop"},
		{"/s", 4, "/status"},
		{"/ex", 1, "/exit "},
		{"/nothing", 1, "/nothing"},
		{"say /he", 1, "say /he"}, // not a command inside a text
		{"read @no", 1, "read @notes"},
		{"read @no", 2, "read @notes/"},
		{"read @no", 3, "read @notes.txt"},
		{"read @日", 1, "read @日本.txt "},
	} {
		d := sit(t, 60, 20, Options{})
		d.gets(fullState())
		d.types(tt.typed)
		if i := strings.Index(tt.typed, "@"); i >= 0 {
			prefix := tt.typed[i+1:]
			if len(d.asked) == 0 || d.asked[len(d.asked)-1] != prefix {
				t.Errorf("%q asked for files %q", tt.typed, d.asked)
			}
			var names []string
			for _, name := range []string{"notes/", "notes.txt", "日本.txt"} {
				if strings.HasPrefix(name, prefix) {
					names = append(names, name)
				}
			}
			d.gets(Files{"other", []string{"others"}}, Files{prefix, names})
		}
		for range tt.tabs {
			before := len(d.asked)
			d.presses("tab")
			if n := len(d.asked); n > before && d.asked[n-1] == "notes" {
				d.gets(Files{"notes", []string{"notes/", "notes.txt"}})
			}
		}
		if got := d.editor.value(); got != tt.want {
			t.Errorf("%q and %d tabs make %q, want %q", tt.typed, tt.tabs, got, tt.want)
		}
	}
}

// Tab may be pressed before the gateway has sent the names.
func TestCompleteLate(t *testing.T) {
	d := sit(t, 60, 20, Options{})
	d.types("@no")
	d.presses("tab")
	d.wantTyped("@no")
	d.gets(Files{"no", []string{"notes.txt"}})
	d.wantTyped("@notes.txt ")
}

// Sent messages are in the history of the next run. Nobody else can read its file.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	d := sit(t, 40, 20, Options{History: path})
	d.enters("one")
	d.types("two\\")
	d.presses("enter")
	d.enters("日本")
	d.enters("two\\\n日本") // the backslash is stored unchanged
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	d = sit(t, 40, 20, Options{History: path})
	d.types("draft")
	d.presses("up")
	d.wantTyped("two\\\n日本")
	d.presses("up", "up", "up")
	d.wantTyped("two\n日本")
	d.presses("up", "up")
	d.wantTyped("one")
	d.presses("up")
	d.wantTyped("one")
	for range 6 {
		d.presses("down")
	}
	d.wantTyped("draft")
}

// A history that can't be read or written does not prevent a chat.
func TestHistoryBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(path, []byte("\"one\"\nnonsense\n\n\"two\"\n\"thr"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := openHistory(path)
	if err != nil || !slices.Equal(h.entries, []string{"one", "two"}) {
		t.Errorf("the history has %q, %v", h.entries, err)
	}
	d := sit(t, 60, 20, Options{})
	d.history.path = filepath.Join(path, "below a file")
	d.enters("hello")
	d.enters("again")
	d.wantSaid("hello", "again")
	if all := strings.Join(d.looks(), "\n"); strings.Count(all, "Your messages are not kept in") != 1 {
		t.Errorf("the screen says\n%s", all)
	}
}

// The history's file has a limited length.
func TestHistoryIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	h, err := openHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2*maxHistory + 1 {
		if err := h.add(strings.Repeat("x", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if h, err = openHistory(path); err != nil || len(h.entries) != maxHistory {
		t.Errorf("the history has %d entries, %v", len(h.entries), err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), "\n") != maxHistory {
		t.Errorf("the file has %d lines, %v", strings.Count(string(text), "\n"), err)
	}
}

// Ctrl-R finds messages that were sent before.
func TestFind(t *testing.T) {
	d := sit(t, 60, 20, Options{})
	for _, text := range []string{"first apple", "second apple", "pear"} {
		d.enters(text)
	}
	d.types("draft")
	d.presses("ctrl+r")
	d.types("app")
	d.wantTyped("second apple")
	d.wantShown("history: app")
	d.presses("ctrl+r")
	d.wantTyped("first apple")
	d.presses("ctrl+r")
	d.wantShown("(not found)")
	d.presses("esc")
	d.wantTyped("draft")
	d.presses("ctrl+r")
	d.types("pea")
	d.presses("enter")
	d.wantSaid("first apple", "second apple", "pear", "pear")
}

// Before it leaves, the screen asks only if the gateway ends with the chat and other accounts
// need the gateway.
func TestLeaveAsks(t *testing.T) {
	for _, tt := range []struct {
		owned  bool
		others int
		key    string
		asks   bool
		stays  bool
	}{
		{true, 1, "y", true, true}, {true, 1, "n", true, false}, {true, 0, "", false, false},
		{false, 1, "", false, false},
	} {
		d := sit(t, 60, 20, Options{Owned: tt.owned})
		d.gets(&State{Accounts: fullState().Accounts[:tt.others]})
		d.enters("/exit")
		if d.leaving != tt.asks {
			t.Errorf("%+v: the person is asked: %v", tt, d.leaving)
		}
		if tt.asks {
			d.presses("esc")
			d.wantEnd(false)
			d.presses("ctrl+d")
			d.types(tt.key)
		}
		d.wantEnd(true)
		if d.Stays() != tt.stays {
			t.Errorf("%+v: the gateway goes on: %v", tt, d.Stays())
		}
	}
}

// The person is told once who asks to be let in, and which accounts connect or disconnect.
func TestNews(t *testing.T) {
	d := sit(t, 80, 20, Options{})
	s := fullState()
	s.Strangers, s.Accounts[0].Up, s.Accounts[0].Text = nil, false, "connecting"
	d.gets(s)
	d.printed = nil
	d.gets(fullState(), fullState())
	d.wantPrinted("✓ telegram: connected as @lab_bot",
		"! 小明 42 asks to be let in on telegram: /pair ABCD2345")
}

// Nothing is printed before Bubble Tea knows its place. Text is printed in pieces that fit above
// the rows that change.
func TestPrintsPieces(t *testing.T) {
	d := sit(t, 80, 12, Options{})
	var pieces []int
	d.emit = func(text string) tea.Cmd {
		pieces = append(pieces, strings.Count(text, "\n")+1)
		return nil
	}
	d.drawn = false
	d.gets(Message{ID: "a", Text: strings.Repeat("row\n\n", 10)}, Message{ID: "a", Done: true})
	if len(pieces) > 0 {
		t.Errorf("pieces of %d rows were printed", pieces)
	}
	if rows := strings.Count(d.View().Content, "\n") + 1; rows > d.most() {
		t.Errorf("%d rows change, %d at most may", rows, d.most())
	}
	d.gets(Drawn{})
	sum := 0
	for _, n := range pieces {
		if sum += n; n+d.most() >= d.height {
			t.Errorf("a piece has %d rows, and %d may change", n, d.most())
		}
	}
	if sum != 20 {
		t.Errorf("%d rows were printed, want 20", sum)
	}
}
