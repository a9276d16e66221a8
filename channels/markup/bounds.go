package markup

import "strings"

// Limits of what is parsed. No readable text exceeds them. A text that does is shown unchanged.
const (
	mostBytes      = 256 << 10
	mostMarkers    = 32      // of quotations and lists, before the text of a line
	mostBrackets   = 256     // [
	mostReferenced = 1 << 18 // bytes of the links that references can expand to
	mostMarks      = 8192    // of emphasis, and as many of spoilers
	mostCells      = 20_000  // of tables
)

// isTooComplex reports whether the time or memory for md could grow faster than its length. The
// parser searches all preceding text for the partner of each bracket and mark, copies the target of
// a reference to each use, and fills the rows of a table up to its number of columns.
func isTooComplex(md string) bool {
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

// longestLine returns the length of the longest line in bytes. The target of a reference has no
// line break, so it is not longer.
func longestLine(md string) int {
	longest := 0
	for line := range strings.Lines(md) {
		longest = max(longest, len(line))
	}
	return longest
}

// cells returns the maximum number of cells in the tables of md. The line below a table's header
// determines the number of columns of each row, up to the next blank line.
func cells(md string) int {
	all := 0              // in the paragraphs before
	columns, rows := 0, 0 // in this paragraph: most columns of a line, and lines from the first
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

// delimiters returns the maximum number of columns of a table if line stands below its header, or 0
// if it can't.
func delimiters(line string) int {
	// A list marker may precede it.
	line = strings.TrimLeft(line, "0123456789.)*+ \t>")
	// Dashes alone are the underline of a heading, or a break.
	if strings.Trim(line, "-:| \t\r\n\v\f") != "" || !strings.ContainsAny(line, "|:") ||
		!strings.Contains(line, "-") {
		return 0
	}
	return strings.Count(strings.Trim(line, "| \t\r\n\v\f"), "|") + 1
}
