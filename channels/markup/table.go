package markup

import (
	"slices"
	"sort"
	"strings"

	"github.com/rivo/uniseg"
	extast "github.com/yuin/goldmark/extension/ast"
)

// A tableSource is a table in a source, as byte offsets.
type tableSource struct {
	head, body int // start of the line with the names of the columns, and of the first row
	end        int // end of the last row
}

// findTables finds the tables of src outside of quotations. It examines single lines and returns
// only certain cases.
func findTables(src string, fences []fence) []tableSource {
	var found []tableSource
	head := -1 // start of the line before, if it may name the columns
	for pos := 0; pos < len(src); {
		if len(fences) > 0 && pos >= fences[0].open {
			pos, head = max(pos, fences[0].end), -1
			fences = fences[1:]
			continue
		}
		next := len(src)
		if i := strings.IndexByte(src[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		line := strings.TrimSpace(src[pos:next])
		last := len(found) - 1
		switch {
		case !strings.Contains(line, "|"):
			head = -1
		case last >= 0 && found[last].end == pos:
			found[last].end = next
		case head >= 0 && strings.Trim(line, "-:| \t") == "" &&
			delimiters(line) == columns(src[head:pos]):
			found = append(found, tableSource{head, next, next})
			head = -1
		case line[0] == '>' || listMarker(line) > 0:
			head = -1
		default:
			head = pos
		}
		pos = next
	}
	return found
}

// columns returns the number of columns that a line names.
func columns(line string) int {
	line = strings.Trim(strings.ReplaceAll(line, `\|`, ""), "| \t\r\n")
	return strings.Count(line, "|") + 1
}

// tableAt returns the table that begins before pos and ends after it, or nil.
func (s *splitter) tableAt(pos int) *tableSource {
	i := sort.Search(len(s.tables), func(i int) bool { return s.tables[i].end > pos })
	if i == len(s.tables) || s.tables[i].head >= pos {
		return nil
	}
	return &s.tables[i]
}

// header returns the head of the table of which a row begins at pos, or "". Without it the rows of
// a piece would be no table.
func (s *splitter) header(pos int) string {
	t := s.tableAt(pos)
	if t == nil || pos < t.body || t.body-t.head > s.limit/4 {
		return ""
	}
	line := strings.LastIndexByte(s.src[:pos], '\n') + 1
	if strings.TrimSpace(s.src[line:pos]) != "" {
		return "" // the rest of a row
	}
	var b strings.Builder
	for line := range strings.Lines(s.src[t.head:t.body]) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// maxColumn is the maximum width to which a column is padded, in terminal columns. A longer cell
// sticks out, because padding each row to its width would not help.
const maxColumn = 40

// grid renders a table. In a dialect that wraps, the table takes at most the available width.
func (r *renderer) grid(t *extast.Table) {
	rows := r.rows(t)
	if !r.d.wraps {
		r.w.pre("", grid(rows, widths(rows, maxColumn), t.Alignments, false))
		return
	}
	room := r.w.columnsLeft(true)
	columns := widths(rows, max(room, maxColumn))
	if room > 0 && !shrink(columns, room) {
		r.records(rows)
		return
	}
	for i, line := range strings.Split(grid(rows, columns, t.Alignments, true), "\n") {
		r.w.line(line, i == 0)
	}
}

// rows returns the cells of a table, each as one line of text. Cells beyond the columns of the
// header are left out.
func (r *renderer) rows(t *extast.Table) (rows [][]string) {
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil && len(cells) < len(t.Alignments); {
			s := strings.Join(strings.Fields(r.plainText(cell)), " ")
			if r.d.wraps {
				s = displayed(s)
			}
			cells = append(cells, s)
			cell = cell.NextSibling()
		}
		rows = append(rows, cells)
	}
	return rows
}

// widths returns the widths of the columns, each at most widest.
func widths(rows [][]string, widest int) []int {
	var columns []int
	for _, cells := range rows {
		for i, s := range cells {
			if i == len(columns) {
				columns = append(columns, 0)
			}
			columns[i] = max(columns[i], min(uniseg.StringWidth(s), widest))
		}
	}
	return columns
}

// shrink narrows the widest columns until all fit into room. It returns false if they can't.
func shrink(columns []int, room int) bool {
	const least = 6               // columns that a cell needs to be readable
	sum := 3 * (len(columns) - 1) // " | " between columns
	for _, w := range columns {
		sum += w
	}
	for sum > room {
		widest := slices.Index(columns, slices.Max(columns))
		if columns[widest] <= least {
			return false
		}
		columns[widest]--
		sum--
	}
	return true
}

// grid returns a table as text with aligned columns. A cell that is wider than its column is broken
// into lines, or sticks out.
func grid(rows [][]string, columns []int, alignments []extast.Alignment, broken bool) string {
	var b strings.Builder
	for i, cells := range rows {
		// A row has as many lines as its highest cell.
		lines := make([][]string, len(cells))
		height := 1
		for c, s := range cells {
			lines[c] = []string{s}
			if broken {
				lines[c] = wrap(s, columns[c], columns[c], false)
			}
			height = max(height, len(lines[c]))
		}
		for row := range height {
			var line strings.Builder
			for c := range cells {
				s := ""
				if row < len(lines[c]) {
					s = lines[c][row]
				}
				if c > 0 {
					line.WriteString(" | ")
				}
				pad(&line, s, columns[c], alignments[c])
			}
			b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
		if i == 0 {
			b.WriteString(rule(columns) + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// records renders a table whose columns don't fit side by side: each row becomes lines with a
// header and a cell.
func (r *renderer) records(rows [][]string) {
	first := true
	for i, cells := range rows[1:] {
		if i > 0 {
			r.w.pendingBreaks = 2
		}
		for c, s := range cells {
			if s == "" {
				continue
			}
			if !first {
				r.w.pendingBreaks = max(r.w.pendingBreaks, 1)
			}
			first = false
			r.flow(func(r *renderer) { r.w.text(rows[0][c] + ": " + s) })
		}
	}
}

// pad writes s with blanks up to width. A wider s is not cut.
func pad(b *strings.Builder, s string, width int, a extast.Alignment) {
	left, right := 0, max(0, width-uniseg.StringWidth(s))
	switch a {
	case extast.AlignRight:
		left, right = right, 0
	case extast.AlignCenter:
		left, right = right/2, right-right/2
	}
	b.WriteString(strings.Repeat(" ", left) + s + strings.Repeat(" ", right))
}

// rule returns the line between header and body.
func rule(widths []int) string {
	parts := make([]string, len(widths))
	for i, w := range widths {
		parts[i] = strings.Repeat("-", w)
	}
	return strings.Join(parts, "-+-")
}
