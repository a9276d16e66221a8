package markup

import "strings"

// A piece that begins within an item of a list lacks the item's marker, and its first line lacks
// its indentation. The following lines of the item must lose theirs, too. Otherwise they would be
// an indented code block, which shows their source.

// itemIndent returns the number of columns that the rest of a list item loses in a piece that
// begins at pos, or 0 if the piece does not begin within an item.
func (s *splitter) itemIndent(pos int) int {
	if f := s.inside(pos); f != nil {
		if f.quote != "" {
			return 0
		}
		pos = f.open + strings.Index(s.src[f.open:f.body], f.marker)
	}
	start := strings.LastIndexByte(s.src[:pos], '\n') + 1
	indent, marked := contentIndent(s.src[start:pos])
	if marked {
		return indent
	}
	// The item is the nearest line above with less indentation, if that is an item.
	for above := indent; start > 0 && above > 0; {
		end := start - 1
		start = strings.LastIndexByte(s.src[:end], '\n') + 1
		line := s.src[start:end]
		trimmed := strings.TrimLeft(line, blanks)
		n, _ := contentIndent(line[:len(line)-len(trimmed)])
		if trimmed == "" || n >= above {
			continue
		}
		if above = n; listMarker(trimmed) > 0 {
			return indent
		}
	}
	return 0
}

// contentIndent returns the columns of the blanks and list markers at the beginning of a line. It
// reports whether there are markers.
func contentIndent(line string) (columns int, marked bool) {
	for {
		line, columns = cutBlanks(line, columns)
		n := listMarker(line)
		if n == 0 {
			return columns, marked
		}
		marked = true
		columns += n
		line = line[n:]
	}
}

// cutBlanks returns line, which begins at a column, without the blanks at its beginning, and the
// column behind them.
func cutBlanks(line string, column int) (rest string, after int) {
	rest = strings.TrimLeft(line, " \t")
	for i := range len(line) - len(rest) {
		column = columnAfter(column, line[i])
	}
	return rest, column
}

// columnAfter returns the column behind a blank. A tab ends at a multiple of four columns.
func columnAfter(column int, blank byte) int {
	if blank == '\t' {
		return column/4*4 + 4
	}
	return column + 1
}

// dedent returns line without its indentation, up to a number of columns, and how many it had of
// them.
func dedent(line string, columns int) (rest string, had int) {
	n := 0
	for n < len(line) && had < columns && (line[n] == ' ' || line[n] == '\t') {
		had = columnAfter(had, line[n])
		n++
	}
	// Only a part of the last tab may belong to the indentation.
	return strings.Repeat(" ", max(0, had-columns)) + line[n:], min(had, columns)
}

// dedented returns src[pos:end] without the indentation of the item in which the piece begins. A
// line with less indentation is outside of that item, and the lines after it lose no more than it.
// dedented also returns what a line after end would lose.
func (s *splitter) dedented(pos, end int) (string, int) {
	indent := s.indent
	if indent == 0 {
		return s.src[pos:end], 0
	}
	var b strings.Builder
	for line := range strings.Lines(s.src[pos:end]) {
		size := len(line)
		if pos > 0 && s.src[pos-1] == '\n' && strings.Trim(line, blanks) != "" {
			var had int
			line, had = dedent(line, indent)
			if s.inside(pos) == nil {
				indent = had
			}
		}
		b.WriteString(line)
		pos += size
	}
	return b.String(), indent
}
