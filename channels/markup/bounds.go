package markup

import "strings"

// Bounds of what is parsed. A text beyond them, which nobody writes to be read, is shown as it is.
const (
	mostBytes      = 256 << 10
	mostMarkers    = 32      // of quotations and lists, before the text of a line
	mostBrackets   = 256     // [
	mostReferenced = 1 << 18 // bytes of the links that references can stand for
	mostMarks      = 8192    // of emphasis, and as many of spoilers
	mostCells      = 20_000  // of tables
)

// isAbsurd reports whether md could take time or memory that grows faster than its length. The
// parser looks for the partner of each bracket and mark in all that is before it, copies what a
// reference stands for to each place where it is used, and fills the rows of a table up to its
// number of columns.
func isAbsurd(md string) bool {
	brackets := strings.Count(md, "[")
	switch {
	case len(md) > mostBytes, brackets > mostBrackets,
		strings.Count(md, "*")+strings.Count(md, "_")+strings.Count(md, "~") > mostMarks,
		strings.Count(md, "||") > mostMarks,
		strings.Contains(md, "]:") && brackets*longestLine(md) > mostReferenced:
		return true
	}
	return cells(md) > mostCells || hasManyMarkers(md)
}

// hasManyMarkers reports whether a line begins with dozens of quotation and list markers.
func hasManyMarkers(md string) bool {
	markers, start := 0, true
	for i := range len(md) {
		switch c := md[i]; {
		case c == '\n':
			markers, start = 0, true
		case start && strings.IndexByte(">-+*.)", c) >= 0:
			if markers++; markers > mostMarkers {
				return true
			}
		case start && c != ' ' && c != '\t' && (c < '0' || c > '9'):
			start = false
		}
	}
	return false
}

func longestLine(md string) int {
	longest := 0
	for line := range strings.Lines(md) {
		longest = max(longest, len(line))
	}
	return longest
}

// cells returns how many cells the tables of md have at most. The line below a table's header says
// how many columns each row has, up to the next blank line.
func cells(md string) int {
	all := 0              // of the paragraphs before
	columns, rows := 0, 0 // of this one: the most that a line asks for, and lines from the first
	for line := range strings.Lines(md) {
		inner := strings.TrimLeft(line, " \t>")
		if strings.TrimSpace(inner) == "" {
			all += columns * rows
			columns, rows = 0, 0
			continue
		}
		if columns = max(columns, delimiters(inner)); columns > 0 {
			rows++
		}
	}
	return all + columns*rows
}

// delimiters returns how many columns a line gives a table, at most, if it stands below a header;
// 0 if it can't.
func delimiters(line string) int {
	// What comes before may be the marker of a list.
	line = strings.TrimLeft(line, "0123456789.)*+ \t>")
	if strings.Trim(line, "-:| \t\r\n\v\f") != "" || !strings.ContainsAny(line, "|:") ||
		!strings.Contains(line, "-") {
		return 0
	}
	return strings.Count(strings.Trim(line, "| \t\r\n\v\f"), "|") + 1
}
