package markup

import (
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

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

// An edit replaces src[start:end].
type edit struct {
	start, end int
	with       string
}

// numbered returns md with the numbers with which the items of its lists are shown. A list whose
// items are all written "1." would begin again in each piece.
func numbered(md string) string {
	if isTooComplex(md) {
		return md
	}
	src := []byte(md)
	var edits []edit
	walk(markdown().Parse(text.NewReader(src)), func(n ast.Node) {
		list, ok := n.(*ast.List)
		if !ok || !list.IsOrdered() {
			return
		}
		number := list.Start
		for item := list.FirstChild(); item != nil; item = item.NextSibling() {
			written := writtenNumber(src, item)
			if number = max(number, written); number > written {
				edits = append(edits, renumber(md, item.Pos(), endOf(item, len(md)), number)...)
			}
			number++
		}
	})
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	var b strings.Builder
	pos := 0
	for _, e := range edits {
		b.WriteString(md[pos:e.start] + e.with)
		pos = e.end
	}
	return b.String() + md[pos:]
}

// digitsAt returns the digits at the beginning of s.
func digitsAt(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}

// writtenNumber returns the number that an item of an ordered list has in its source.
func writtenNumber(src []byte, item ast.Node) int {
	const longest = 9 // digits
	number, _ := strconv.Atoi(digitsAt(string(src[item.Pos():min(len(src), item.Pos()+longest)])))
	return number
}

// endOf returns the start of the block after n, or size if n is the last one.
func endOf(n ast.Node, size int) int {
	for ; n != nil; n = n.Parent() {
		if next := n.NextSibling(); next != nil {
			return next.Pos()
		}
	}
	return size
}

// renumber returns the edits that give the item in md[pos:end] a number that is not lower. A longer
// number takes the place of blanks behind it, or moves the other lines of the item to the right.
func renumber(md string, pos, end, number int) []edit {
	start := strings.LastIndexByte(md[:pos], '\n') + 1
	digits, with := digitsAt(md[pos:]), strconv.Itoa(number)
	after := pos + len(digits) + 1
	edits := []edit{{pos, after - 1, with}}
	more := max(0, len(with)-len(digits))
	// After five blanks, indented code would begin.
	spare := len(md[after:]) - len(strings.TrimLeft(md[after:], " ")) - 1
	if spare = min(spare, more); spare > 0 && !strings.HasPrefix(md[after:], "     ") {
		edits = append(edits, edit{after, after + spare, ""})
		more -= spare
	}
	// The lines of a quotation can't be moved, and a number has at most nine digits.
	if more > 0 && strings.Contains(md[start:pos], ">") || len(with) > 9 {
		return nil
	}
	for more > 0 {
		line := strings.IndexByte(md[pos:end], '\n') + 1
		pos += line
		rest, _ := cutBlanks(md[pos:end], 0)
		if line == 0 || rest == "" {
			break
		}
		if rest[0] != '\n' && rest[0] != '\r' {
			edits = append(edits, edit{pos, pos, strings.Repeat(" ", more)})
		}
	}
	return edits
}
