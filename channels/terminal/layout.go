package terminal

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// layout returns the rows of text from base on, for so many columns.
func layout(text string, base, width int) (rows []row) {
	pos, more := base, true
	if base > 0 && text[base-1] != '\n' { // a space between words is no indentation
		pos = len(text) - len(strings.TrimLeft(text[base:], " "))
	}
	for more && pos < len(text) {
		var r, rest string
		r, rest, more = cutRow(text[pos:], width)
		pos = len(text) - len(rest)
		rows = append(rows, row{r, pos})
	}
	return rows
}

// cutRow cuts the first row off text: up to a newline, or the words that fit into width
// columns. ok is false while the row may still grow.
func cutRow(text string, width int) (row, rest string, ok bool) {
	line, rest, ok := strings.Cut(text, "\n")
	columns, space := 0, 0 // space is the last one between words
	for pos, state := 0, -1; pos < len(line); {
		if n := styleLen(line[pos:]); n > 0 {
			pos += n
			continue
		}
		var cluster string
		var w int
		cluster, _, w, state = uniseg.FirstGraphemeClusterInString(line[pos:], state)
		if columns += w; columns > width && pos > 0 {
			switch {
			case cluster == " ":
				return text[:pos], text[pos+1:], true
			case space > 0:
				return text[:space], text[space+1:], true
			}
			return text[:pos], text[pos:], true
		}
		if cluster == " " && strings.TrimLeft(line[:pos], " ") != "" {
			space = pos
		}
		pos += len(cluster)
	}
	return line, rest, ok
}

// styleLen returns the length of the escape sequence for a style that s begins with, or 0. It takes
// no room.
func styleLen(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	return strings.IndexByte(s, 'm') + 1
}

// clean returns text without what could change a terminal: models repeat what strangers wrote.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\t", "    ")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return -1
		}
		return r
	}, text)
}

// common returns the length of what a and b begin with in common, in whole code points, and in
// whole lines where these have styles. Both are valid UTF-8.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	line := strings.LastIndexByte(b[:n], '\n') + 1
	if end := strings.IndexByte(b[line:]+"\n", '\n'); strings.Contains(b[line:line+end], "\x1b") {
		return line
	}
	return n
}
