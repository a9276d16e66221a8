package screen

import (
	"slices"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/rivo/uniseg"
)

// A cluster is a character as people see it, such as an emoji with its modifiers, or a newline.
type cluster struct {
	text   string
	pasted bool // it was not typed, so it can't begin a command
}

// tab is how a tab is displayed. The message keeps the tab character.
const tab = "    "

// shown returns what the screen shows.
func (c cluster) shown() string {
	if c.text == "\t" {
		return tab
	}
	return c.text
}

func (c cluster) isSpace() bool { return strings.TrimSpace(c.text) == "" }
func (c cluster) inWord() bool  { return !c.isSpace() }
func (c cluster) inLine() bool  { return c.text != "\n" }

// An editor is a text of several lines with a cursor. It moves over and deletes whole clusters. The
// text area of bubbles works with code points and could leave half an emoji.
type editor struct {
	text []cluster
	at   int // the cursor is before text[at]
}

// value returns the text.
func (e *editor) value() string { return join(e.text) }

// join returns the text of clusters.
func join(clusters []cluster) string {
	var b strings.Builder
	for _, c := range clusters {
		b.WriteString(c.text)
	}
	return b.String()
}

// literal reports whether the text begins with pasted text.
func (e *editor) literal() bool {
	for _, c := range e.text {
		if !c.isSpace() {
			return c.pasted
		}
	}
	return false
}

// typed marks the text as typed by hand.
func (e *editor) typed() {
	for i := range e.text {
		e.text[i].pasted = false
	}
}

// set replaces the text and moves the cursor to its end.
func (e *editor) set(text string) {
	e.text, e.at = nil, 0
	e.insert(text, false)
}

// insert inserts text before the cursor. Characters that combine with their new neighbours become
// one cluster.
func (e *editor) insert(text string, pasted bool) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	text = strings.ToValidUTF8(strings.Map(editable, text), "\ufffd")
	if text == "" {
		return
	}
	// Only the two neighbours can combine with the text.
	from, to := max(e.at-1, 0), min(e.at+1, len(e.text))
	before, after := e.text[from:e.at], e.text[e.at:to]
	added := split(join(before)+text+join(after), pasted)
	behind := len(e.text) - to
	// The neighbouring clusters keep their properties unless the new text has combined with them.
	if len(before) > 0 && added[0].text == before[0].text {
		added[0] = before[0]
	}
	if n := len(added) - 1; len(after) > 0 && added[n].text == after[0].text {
		added[n] = after[0]
		behind++
	}
	e.text = slices.Concat(e.text[:from], added, e.text[to:])
	e.at = len(e.text) - behind
}

// split returns the clusters of text.
func split(text string, pasted bool) (clusters []cluster) {
	for state := -1; text != ""; {
		var c string
		c, text, _, state = uniseg.FirstGraphemeClusterInString(text, state)
		clusters = append(clusters, cluster{c, pasted})
	}
	return clusters
}

// editable removes characters that could change a terminal or the direction of text.
func editable(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return -1
	}
	return r
}

// remove deletes the clusters between two positions, in any order, and moves the cursor there.
func (e *editor) remove(a, b int) {
	from, to := max(min(a, b), 0), min(max(a, b), len(e.text))
	e.text = slices.Concat(e.text[:from], e.text[to:])
	e.at = from
}

// move moves the cursor by n clusters.
func (e *editor) move(n int) { e.at = min(max(e.at+n, 0), len(e.text)) }

// back and forth return where a run of clusters ends for which is holds: before position i, or from
// it on.
func (e *editor) back(i int, is func(cluster) bool) int {
	for i > 0 && is(e.text[i-1]) {
		i--
	}
	return i
}

func (e *editor) forth(i int, is func(cluster) bool) int {
	for i < len(e.text) && is(e.text[i]) {
		i++
	}
	return i
}

// lineStart and lineEnd return the bounds of the cursor's line.
func (e *editor) lineStart() int { return e.back(e.at, cluster.inLine) }
func (e *editor) lineEnd() int   { return e.forth(e.at, cluster.inLine) }

// wordStart and wordEnd return the bounds of the word beside the cursor.
func (e *editor) wordStart() int { return e.back(e.back(e.at, cluster.isSpace), cluster.inWord) }
func (e *editor) wordEnd() int   { return e.forth(e.forth(e.at, cluster.isSpace), cluster.inWord) }

// A line is a row of the editor on the screen: the clusters from up to, but not including, to.
type line struct{ from, to int }

// layout returns the rows of the text for a width in columns, and the position of the cursor. A row
// ends before the first cluster that does not fit. A cluster that is wider than the screen has a
// row of its own.
func (e *editor) layout(width int, m ansi.Method) (rows []line, row, column int) {
	from, columns := 0, 0
	end := func(to, next int) {
		rows = append(rows, line{from, to})
		from, columns = next, 0
	}
	for i, c := range e.text {
		w := m.StringWidth(c.shown())
		if c.text != "\n" && columns+w > width && columns > 0 {
			end(i, i)
		}
		if i == e.at {
			row, column = len(rows), min(columns, width)
		}
		if c.text == "\n" {
			end(i, i+1)
			continue
		}
		columns += w
	}
	// The last row is full, so the cursor behind it needs another one.
	if columns >= width {
		end(len(e.text), len(e.text))
	}
	if e.at == len(e.text) {
		row, column = len(rows), min(columns, width)
	}
	return append(rows, line{from, len(e.text)}), row, column
}

// up moves the cursor up by n rows. It returns false if there is no such row. A negative n moves it
// down. The cursor keeps its column if the row is long enough.
func (e *editor) up(n, width int, m ansi.Method) bool {
	rows, row, column := e.layout(width, m)
	row -= n
	if row < 0 || row >= len(rows) {
		return false
	}
	e.at = rows[row].from
	for columns := 0; e.at < rows[row].to; e.at++ {
		if columns += m.StringWidth(e.text[e.at].shown()); columns > column {
			break
		}
	}
	return true
}

// view returns the rows of the text around the cursor, height at most, and the cursor's position in
// them.
func (e *editor) view(width, height int, m ansi.Method) (shown []string, row, column int) {
	rows, row, column := e.layout(width, m)
	first := 0
	if len(rows) > height {
		first = min(max(row-height/2, 0), len(rows)-height)
		rows = rows[first : first+height]
	}
	for _, r := range rows {
		var b strings.Builder
		for _, c := range e.text[r.from:r.to] {
			b.WriteString(c.shown())
		}
		shown = append(shown, b.String())
	}
	return shown, row - first, column
}
