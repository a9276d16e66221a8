package screen

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

const family = "👨\u200d👩\u200d👧"

// Each key moves over or deletes one visible character.
func TestEditClusters(t *testing.T) {
	for _, tt := range []struct {
		text string
		keys []string
		want string
		at   int // column of the cursor
	}{
		{"日本語のテスト", []string{"left", "left", "x"}, "日本語のテxスト", 11},
		{"日本", []string{"home", "x"}, "x日本", 1},
		{"a" + family + "b", []string{"left", "backspace"}, "ab", 1},
		{"a" + family + "b", []string{"home", "right", "delete"}, "ab", 1},
		{"a" + family + "b", []string{"left", "left", "x"}, "ax" + family + "b", 2},
		{"e\u0301e\u0301", []string{"backspace"}, "e\u0301", 1},
		{"🇩🇪🇫🇷", []string{"left", "backspace"}, "🇫🇷", 0},
		{"one two", []string{"ctrl+w"}, "one ", 4},
		{"one\ntwo", []string{"ctrl+u"}, "one\n", 0},
		{"one\ntwo", []string{"home", "ctrl+k"}, "one\n", 0},
		{"one\ntwo", []string{"up", "x"}, "onex\ntwo", 4},
		{"日本\nabc", []string{"left", "up", "x"}, "日x本\nabc", 3},
	} {
		d := sit(t, 40, 20, Options{})
		d.types(tt.text)
		for _, k := range tt.keys {
			if len(k) == 1 {
				d.types(k)
			} else {
				d.presses(k)
			}
		}
		d.wantTyped(tt.want)
		if _, _, column := d.editor.layout(d.room(), d.method); column != tt.at {
			t.Errorf("%q %v: the cursor is in column %d, want %d", tt.text, tt.keys, column, tt.at)
		}
	}
}

// After any text and any keys, each row of the editor fits, and the cursor has a valid place.
func TestEditorHolds(t *testing.T) {
	pieces := []string{"a", " ", "\n", "日", family, "\u0301", "\u200d", "👩", "🇩", "\t", "é", "\r\n"}
	rapid.Check(t, func(t *rapid.T) {
		var e editor
		width := rapid.IntRange(2, 12).Draw(t, "width")
		m := rapid.SampledFrom([]ansi.Method{ansi.WcWidth, ansi.GraphemeWidth}).Draw(t, "method")
		inserted := 0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				e.move(rapid.IntRange(-3, 3).Draw(t, "n"))
			case 1:
				e.up(rapid.SampledFrom([]int{-1, 1}).Draw(t, "rows"), width, m)
			case 2:
				e.remove(e.at-1, e.at)
			default:
				e.insert(rapid.SampledFrom(pieces).Draw(t, "text"), rapid.Bool().Draw(t, "pasted"))
				inserted++
			}
			if e.at < 0 || e.at > len(e.text) {
				t.Fatalf("the cursor is before cluster %d of %d", e.at, len(e.text))
			}
			rows, row, column := e.layout(width, m)
			if row < 0 || row >= len(rows) || column < 0 || column > width {
				t.Fatalf("the cursor is in row %d, column %d of %d rows", row, column, len(rows))
			}
			all := 0
			for _, r := range rows {
				all += r.to - r.from
			}
			if lines := strings.Count(e.value(), "\n"); all+lines != len(e.text) {
				t.Fatalf("%d clusters are shown of %q", all, e.value())
			}
		}
	})
}

func TestInsertKeepsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e editor
		text := rapid.StringMatching("[a-z日本 \n👩é]{0,30}").Draw(t, "text")
		e.set(text)
		at := rapid.IntRange(0, len(e.text)).Draw(t, "at")
		before, after := join(e.text[:at]), join(e.text[at:])
		e.at = at
		e.insert("x\ny", true)
		if got, want := e.value(), before+"x\ny"+after; got != want {
			t.Fatalf("the text is %q, want %q", got, want)
		}
		if got, want := join(e.text[:e.at]), before+"x\ny"; got != want {
			t.Fatalf("before the cursor is %q, want %q", got, want)
		}
	})
}
