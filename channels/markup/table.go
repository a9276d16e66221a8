package markup

import (
	"strings"

	"github.com/rivo/uniseg"
	extast "github.com/yuin/goldmark/extension/ast"
)

// maxColumn is the widest that a column is made to align it, in columns of a terminal. A longer
// cell sticks out, because padding each row to its width would help nobody.
const maxColumn = 40

// table returns a table as text with aligned columns.
func (r *renderer) table(t *extast.Table) string {
	var rows [][]string
	widths := make([]int, len(t.Alignments))
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			i := len(cells)
			if i == len(widths) {
				break
			}
			cells = append(cells, strings.Join(strings.Fields(r.plainText(cell)), " "))
			widths[i] = max(widths[i], min(uniseg.StringWidth(cells[i]), maxColumn))
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	for i, cells := range rows {
		var line strings.Builder
		for column, s := range cells {
			if column > 0 {
				line.WriteString(" | ")
			}
			pad(&line, s, widths[column], t.Alignments[column])
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if i == 0 {
			b.WriteString(rule(widths) + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

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
