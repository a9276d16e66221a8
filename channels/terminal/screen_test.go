package terminal

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rivo/uniseg"

	"gateway/channels/markup"
)

// A person sits at a screen of a vt.
type person struct {
	*vt
	*Screen
	keys io.WriteCloser
}

// sit returns a person at a screen, whose input is read once read is called. It runs in a bubble.
func sit(t *testing.T, width, height int) *person {
	v := newVT(t, width, height)
	in, keys := io.Pipe()
	t.Cleanup(func() { keys.Close() })
	return &person{v, newTyped(in, v, v.size), keys}
}

func (p *person) Write(b []byte) (int, error) { return p.Screen.Write(b) }

func (p *person) types(keys string) {
	if _, err := io.WriteString(p.keys, keys); err != nil {
		p.t.Error(err)
	}
	synctest.Wait()
}

func (p *person) shows(text string) {
	p.t.Helper()
	if err := p.show(text); err != nil {
		p.t.Error(err)
	}
}

// prompt makes the screen read a line, with its prompt on the screen.
func (p *person) prompt() (line <-chan string) {
	lines := make(chan string, 1)
	go func() {
		line, err := p.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			p.t.Error(err)
		}
		lines <- line
	}()
	synctest.Wait()
	return lines
}

// An answer grows word by word and character by character.
func TestShowGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 10, 20)
		p.prompt()
		for _, text := range []string{"", "a", "a lo", "a longer", "a longer o"} {
			p.shows(text)
		}
		p.want("a longer o")
		p.shows("a longer one") // the last word moves to the next row
		p.want("a longer", "one")
		p.shows("a longer one\n\nand")
		p.want("a longer", "one", "", "and")
		p.end()
		p.begin("")
		p.shows("next")
		p.want("a longer", "one", "", "and", "next")
		if last := p.rows(); last != promptText {
			t.Errorf("the last row is %q, want the prompt", last)
		}
	})
}

// rows returns the last row as it is.
func (p *person) rows() string { return strings.Join(p.vt.rows[len(p.vt.rows)-1], "") }

func TestShowChanges(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after string
		want          []string
	}{
		{"status line", "Let me see.\n\n_reads_", "Let me see. It says no.",
			[]string{"Let me see. It says", "no."}},
		{"status only", "_reads_", "No.", []string{"No."}},
		{"the end", "one two three", "one two four", []string{"one two four"}},
		{"shorter", "one two three four five", "one two", []string{"one two"}},
		{"nothing left", "one", "", nil},
		{"another", "one\ntwo\nthree", "four", []string{"four"}},
		{"multi-byte", "über é", "über è", []string{"über è"}},
		{"wide", "日本語の", "日本人の答え", []string{"日本人の答え"}},
		{"the same", "one\ntwo", "one\ntwo", []string{"one", "two"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := sit(t, 20, 20)
				p.prompt()
				p.shows(tt.before)
				p.shows(tt.after)
				p.want(tt.want...)
			})
		})
	}
}

// What has become another too far up is printed anew from there, since rows that have left the
// screen can't be changed.
func TestShowChangesFarUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 10, 6)
		p.prompt()
		p.shows("1\n2\n3\n4\n5\n6\n7\n8")
		p.shows("1\n2\n3\nx\ny")
		p.want("1", "2", "3", "4", "5", "6", "7", "8", "x", "y")
		p.shows("1\n2\n3\nx\nz")
		p.want("1", "2", "3", "4", "5", "6", "7", "8", "x", "z")
		p.shows("0") // even what is settled
		p.want("1", "2", "3", "4", "5", "6", "7", "8", "x", "z", "0")
	})
}

// A long answer is laid out from where it can still change.
func TestShowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 20, 5)
		p.prompt()
		var text string
		var want []string
		for i := range 100 {
			row := fmt.Sprint("row ", i)
			want = append(want, row)
			for _, c := range row + "\n" {
				text += string(c)
				p.shows(text)
			}
		}
		p.want(want...)
		if n := len(text) - p.base; n > 5*8 {
			t.Errorf("%d bytes can still change", n)
		}
	})
}

// Log lines come between, above the row that grows.
func TestLogBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 20, 10)
		p.prompt()
		fmt.Fprintln(p, "log 1")
		p.shows("one\ntwo thr")
		fmt.Fprintln(p, "log 2")
		p.want("log 1", "one", "log 2", "two thr")
		p.shows("one\ntwo three")
		p.want("log 1", "one", "log 2", "two three")
		p.shows("one\ntwo three\n")
		fmt.Fprintln(p, "log 3")
		p.shows("one\ntwo three\nfour")
		p.want("log 1", "one", "log 2", "two three", "log 3", "four")
		p.end()
		fmt.Fprintln(p, "log 4")
		p.want("log 1", "one", "log 2", "two three", "log 3", "four", "log 4")
	})
}

// What a person types stays where it is while an answer grows above it, and a line that is
// entered ends the row: the answer goes on below.
func TestTypeWhileShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 20, 10)
		line := p.prompt()
		p.shows("one two")
		p.types("hel")
		p.shows("one two three four five")
		p.want("one two three four", "five", "> hel")
		p.types("lo\r")
		if got := <-line; got != "hello" {
			t.Errorf("line is %q", got)
		}
		p.prompt()
		p.shows("one two three four five six")
		p.want("one two three four", "five", "> hello", "six")
		p.shows("one two three four five six seven")
		p.want("one two three four", "five", "> hello", "six seven")
	})
}

// A message goes on after another one has come between.
func TestShowGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 20, 10)
		p.prompt()
		p.shows("one")
		p.begin("")
		p.shows("status: fine")
		p.begin("one")
		p.shows("one two")
		p.want("one", "status: fine", "two")
	})
}

// A terminal that got another width has wrapped what was there in its own way: it is left alone.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 20, 10)
		p.prompt()
		p.shows("one two three four")
		p.vt.width = 30
		p.shows("one two three four five")
		p.shows("one two three four five six")
		p.want("one two three four", "five six")
	})
}

// A size that can't be had is a usual one.
func TestNoSize(t *testing.T) {
	for _, size := range []func() (int, int, error){
		func() (int, int, error) { return 0, 0, nil },
		func() (int, int, error) { return 0, 0, errors.New("no terminal") },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := sit(t, 80, 24)
			p.Screen.size = size
			p.shows(strings.Repeat("x", 79) + " y")
			p.want(strings.Repeat("x", 79), "y")
		})
	}
}

// After Close the terminal is as it was, and still shows what is written.
func TestScreenClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 20, 10)
		restored := 0
		p.restore = func() { restored++ }
		p.prompt()
		p.shows("one")
		p.Close()
		p.Close()
		fmt.Fprint(p, "log\r\n")
		p.want("one", ">", "log")
		if restored != 1 {
			t.Errorf("restored %d times", restored)
		}
	})
}

func TestCutRow(t *testing.T) {
	for _, tt := range []struct {
		text, row, rest string
		ok              bool
	}{
		{"", "", "", false},
		{"abc", "abc", "", false},
		{"abcde", "abcde", "", false},
		{"abcdef", "abcde", "f", true},
		{"abc def", "abc", "def", true},
		{"abcde fgh", "abcde", "fgh", true},
		{"abc  def", "abc ", "def", true},
		{"ab cd ef", "ab cd", "ef", true},
		{"ab\ncd", "ab", "cd", true},
		{"ab\n", "ab", "", true},
		{"\nab", "", "ab", true},
		{"  abcdef", "  abc", "def", true}, // an indented word is not torn from its indentation
		{"      x", "     ", "x", true},
		{"日本語", "日本", "語", true},
		{"a日本語", "a日本", "語", true},
		{"e\u0301e\u0301e\u0301e\u0301e\u0301e", "e\u0301e\u0301e\u0301e\u0301e\u0301", "e", true},
		{"👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧", "👩‍👩‍👧👩‍👩‍👧", "👩‍👩‍👧", true},
	} {
		row, rest, ok := cutRow(tt.text, 5)
		if row != tt.row || rest != tt.rest || ok != tt.ok {
			t.Errorf("cutRow(%q) = %q, %q, %v, want %q, %q, %v",
				tt.text, row, rest, ok, tt.row, tt.rest, tt.ok)
		}
	}
	if row, rest, _ := cutRow("日本", 1); row != "日" || rest != "本" {
		t.Errorf("a character that is too wide is cut into %q, %q", row, rest)
	}
}

// Rows join to the text, and none is wider than the screen, unless it is one character.
func FuzzCutRow(f *testing.F) {
	f.Add("one two three\n\nfour", 7)
	f.Add("日本語 テキスト 👩‍👩‍👧", 3)
	f.Add("  e\u0301\u0301  \xff\xfe", 2)
	f.Fuzz(func(t *testing.T, text string, width int) {
		if width < 1 || width > 200 || len(text) > 2000 {
			return
		}
		for rest, ok := text, true; ok; {
			var row string
			before := rest
			row, rest, ok = cutRow(before, width)
			between, fits := strings.CutPrefix(before, row)
			between, fits2 := strings.CutSuffix(between, rest)
			if !fits || !fits2 || between != "" && between != " " && between != "\n" {
				t.Fatalf("cutRow(%q, %d) = %q, %q", before, width, row, rest)
			}
			if !ok && rest != "" || ok && len(rest) == len(before) {
				t.Fatalf("cutRow(%q, %d) = %q, %q, %v", before, width, row, rest, ok)
			}
			if w := uniseg.StringWidth(row); w > width && uniseg.GraphemeClusterCount(row) > 1 {
				t.Fatalf("cutRow(%q, %d) = %q with %d columns", before, width, row, w)
			}
		}
	})
}

// ANSI escapes in what strangers wrote change no terminal.
func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ntext":              "plain\ntext",
		"\x1b[2J\x1b]0;title\x07x": "[2J]0;titlex",
		"a\r\nb\tc":                "a\nb    c",
		"c1 \u009b31m\x7f":         "c1 31m",
		"日本語 é 👩‍👩‍👧":              "日本語 é 👩‍👩‍👧",
	} {
		if got := clean(text); got != want {
			t.Errorf("clean(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestCommon(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "abd", 2}, {"abc", "ab", 2}, {"ab", "abc", 2},
		{"é", "è", 0}, {"xé", "xè", 1}, {"日本", "日木", 3}, {"é", "é!", 2},
	} {
		if got := common(tt.a, tt.b); got != tt.want {
			t.Errorf("common(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

// Markdown becomes styles, also where it is complete only later.
func TestShowRendered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sit(t, 30, 20)
		p.render = markup.ANSI
		p.prompt()
		const whole = "Here is **a bold word** and `code`\n\n- one\n- two\n\n" +
			"| a | b |\n|---|---|\n| 日本 | 2 |"
		for n := range len(whole) {
			p.shows(strings.ToValidUTF8(whole[:n+1], ""))
		}
		p.want("Here is a bold word and code", "", "• one", "• two", "", "a    | b", "-----+--", "日本 | 2")
		if _, err := p.Write([]byte("a line of the log\n")); err != nil {
			t.Fatal(err)
		}
		p.end()
		p.begin("")
		p.shows("# Next\n\n[a link](https://example.org) \x1b[2Jand a text that is longer than a row")
		p.want("Here is a bold word and code", "", "• one", "• two", "", "a    | b", "-----+--",
			"a line of the log", "日本 | 2", "Next", "", "a link (https://example.org)",
			"[2Jand a text that is longer", "than a row")
	})
}
